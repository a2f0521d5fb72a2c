"""Owns the three roles and their order. It knows nobody."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outbox.policy.audit import FOR


class Role(StrEnum):
    """Each may what the ones before it may. ANYONE marks doors that show nothing: login, static files, health."""

    ANYONE = "anyone"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(needed)


PEOPLE = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks. `by_token`: the name is proven; on loopback without tokens it is only said."""

    name: str
    role: Role
    by_token: bool = True

    def acting(self, said: str | None) -> str:
        """The name for the audit. A token may act for someone (a chat bot does); the token's name stays in front."""
        said = (said or "").strip()
        if not self.by_token:
            return said or self.name
        return self.name if said in ("", self.name) else f"{self.name}{FOR}{said}"
