"""Operators' pauses, and brakes that they lift: stored for all daemons, which obey within two seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from outbox.errors import OutboxError
from outbox.policy import inputs
from outbox.policy.audit import Actor
from outbox.policy.inputs import BadRequest

EVERYTHING: Final = "*"
# Long enough for a held fingerprint to fail through, short enough that a forgotten one does no harm next week.
LET_FAIL_LASTS: Final = timedelta(hours=1)
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}|lookups_without_a_row(:.{1,512})?")

Row = Mapping[str, Any]


class NeedsByType(OutboxError):
    """A pause of one entity type needs two more indexes, or claims would read past all its rows. Run
    `outbox migrate --by-type`, or pause everything."""

    exit_code = 78


@dataclass(frozen=True, slots=True)
class Pauses:
    can_pause_a_type: Callable[[], bool]
    put: Callable[[str, str, Actor, str, timedelta | None], Row]  # scope, kind, who, why, how long
    take_back: Callable[[str, Actor, str], Row | None]

    def pause(self, actor: Actor, reason: str, entity_type: str | None = None) -> Row:
        """From within two seconds on no daemon claims; what is in flight is finished."""
        actor, reason = _checked(actor, reason)
        if entity_type is not None and not self.can_pause_a_type():
            raise NeedsByType(f"asked for {entity_type}")
        return self.put(_scope(entity_type), "pause", actor, reason, None)

    def resume(self, actor: Actor, reason: str, entity_type: str | None = None) -> Row | None:
        """None: nothing was paused under that name."""
        actor, reason = _checked(actor, reason)
        return self.take_back(_scope(entity_type), actor, reason)

    def let_fail(self, fingerprint: str, actor: Actor, reason: str) -> Row:
        """Events with this fingerprint may fail without the brake, for an hour."""
        actor, reason = _checked(actor, reason)
        if not _FINGERPRINT.fullmatch(fingerprint):
            raise BadRequest([("let_fail", "give the fingerprint that `outbox list --json` and the log show")])
        return self.put(f"let_fail:{fingerprint}", "let_fail", actor, reason, LET_FAIL_LASTS)


def _scope(entity_type: str | None) -> str:
    return EVERYTHING if entity_type is None else f"type:{entity_type}"


def _checked(actor: Actor, reason: str) -> tuple[Actor, str]:
    return inputs.actor(actor.name, actor.source, actor.role), inputs.reason(reason)
