"""Counts how often a partition was begun at one offset and not brought beyond it. Pure.

The count is the metadata of the commit of that offset: only the group outlives a process that a record ends, each time.
A commit of progress has none, and a clean end takes its own count back.
"""

from typing import Final, NamedTuple

MARK: Final = "begun="
SUSPECT_AFTER: Final = 2  # one death may be anything


class Begun(NamedTuple):
    """`before`: how often others began here in vain."""

    offset: int
    before: int

    @property
    def is_suspect(self) -> bool:
        return self.before >= SUSPECT_AFTER

    def mark(self, *, ended: bool) -> str:
        return f"{MARK}{self.before + (0 if ended else 1)}"


def begun_before(metadata: str | None) -> int:
    """What another program left there counts for nothing."""
    count = (metadata or "").removeprefix(MARK)
    return int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 0
