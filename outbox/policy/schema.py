"""Which schema a database has, and whether this program fits it. Reads none."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

State = Literal["ok", "missing", "too_old", "too_new", "changed", "unordered"]

_REMEDY: dict[State, str] = {
    "ok": "",
    "missing": "Run `outbox migrate`.",
    "too_old": "Run `outbox migrate`.",
    "too_new": "This program is older than the schema: install the newer one.",
    "changed": "Install the program that wrote it, or undo that migration by hand (its header says how) "
    "and run `outbox migrate`.",
    "unordered": "Run `alter sequence search_outbox_version cache 1 increment by 1`.",
}


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What the daemon asks at its start. `found` is 0 where nothing of ours is there."""

    state: State
    found: int
    needed: int
    missing: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.state == "ok"

    @property
    def remedy(self) -> str:
        return _REMEDY[self.state]

    def __str__(self) -> str:
        if self.ok:
            return f"schema {self.found}"
        word = self.state.replace("_", " ")
        lacking = f" ({', '.join(self.missing)})" if self.missing else ""
        needed = "" if self.state == "unordered" else f", {self.needed} is needed"
        return f"schema {self.found} is {word}{lacking}{needed}. {self.remedy}"


@dataclass(frozen=True, slots=True)
class Applied:
    name: str
    number: int | None
    checksum: str
    mode: str
    applied_at: datetime
    applied_by: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class SlowIndex:
    """An index that makes every claim touch every index. `kept` ones are unique: their owner must decide."""

    name: str
    schema: str
    columns: tuple[str, ...]
    kept: bool


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    schema: SchemaState
    applied: tuple[Applied, ...]
    pending: tuple[str, ...]
    parts: dict[str, bool]
    slow_indexes: tuple[SlowIndex, ...]
