"""Judges which tables and columns of the view of documents no attachment covers, and names them. Reads no catalogue."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

_TABLES: Final = frozenset("rp")  # ordinary and partitioned: what triggers can be on
_UNSEEN: Final = {"f": "foreign", "m": "materialised", "S": "a sequence"}
MOST_NAMED: Final = 5
REMEDY: Final = (
    "Run `outbox attach --from-view`; or, where a table never changes, or your own code writes the refreshes, "
    "`outbox attach --ignore TABLE --reason WHY`."
)


class ReadTable(NamedTuple):
    """A relation that the view reads. `uncovered`: of the columns that are read, those whose changes write no event.
    `attached`: new and deleted rows do. `ignored`: somebody said that it needs no attachment."""

    table: str
    kind: str
    itself: bool
    attached: bool
    ignored: bool
    uncovered: tuple[str, ...]

    @property
    def is_forgotten(self) -> bool:
        return self.kind in _TABLES and not self.ignored and (not self.attached or bool(self.uncovered))

    @property
    def is_unseen(self) -> bool:
        """No trigger sees its changes."""
        return self.kind in _UNSEEN and not self.ignored and not self.itself

    @property
    def shown(self) -> str:
        if self.kind in _UNSEEN:
            return f"{self.table} ({_UNSEEN[self.kind]})"
        return f"{self.table} ({', '.join(self.uncovered)})" if self.attached else self.table


class IgnoredTable(NamedTuple):
    """What is said to need no attachment: a table, or some of its columns."""

    table: str
    columns: tuple[str, ...]
    reason: str
    ignored_by: str
    ignored_at: datetime

    @property
    def shown(self) -> str:
        return f"{self.table} ({', '.join(self.columns)})" if self.columns else self.table


class Coverage(NamedTuple):
    """What the view reads, with what covers it. `keeps_types`: an entity type is kept by the view, so that its
    documents can be stale already. `has_types`: any is declared."""

    read: Sequence[ReadTable]
    ignored: Sequence[IgnoredTable]
    keeps_types: bool
    has_types: bool

    @property
    def forgotten(self) -> list[ReadTable]:
        """None where payloads keep every type: then the view is nobody's truth."""
        if self.has_types and not self.keeps_types:
            return []
        return [each for each in self.read if each.is_forgotten]

    @property
    def unseen(self) -> list[ReadTable]:
        return [each for each in self.read if each.is_unseen]


def told(view: str, names: Sequence[str]) -> str:
    """One sentence for logs, `status`, `doctor` and the console."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{view} reads what no attachment covers: {', '.join(names[:MOST_NAMED])}{more}"
