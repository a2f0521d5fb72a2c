"""Owns the metadata of a commit: the topic's id, and how often the partition was begun at this offset and not brought
beyond it. Pure.

Only the group outlives a process that a record ends, each time. A commit of progress has no count, and a clean end
takes its own count back. A topic that was made anew has the same name and another id.
"""

from typing import Final, NamedTuple

BEGUN: Final = "begun="
TOPIC: Final = "topic="
SUSPECT_AFTER: Final = 2  # one death may be anything


class Begun(NamedTuple):
    """`before`: how often others began here in vain."""

    offset: int
    before: int

    @property
    def is_suspect(self) -> bool:
        return self.before >= SUSPECT_AFTER

    def mark(self, topic_id: str, *, ended: bool) -> str:
        return f"{BEGUN}{self.before + (0 if ended else 1)};{progress(topic_id)}"


def progress(topic_id: str) -> str:
    return TOPIC + topic_id


def begun_before(metadata: str | None) -> int:
    """What another program left there counts for nothing."""
    count = _field(metadata, BEGUN)
    return int(count) if count.isascii() and count.isdigit() and len(count) < 6 else 0


def topic_of(metadata: str | None) -> str:
    """Empty: an older release has committed it."""
    return _field(metadata, TOPIC)


def _field(metadata: str | None, name: str) -> str:
    return next((f.removeprefix(name) for f in (metadata or "").split(";") if f.startswith(name)), "")
