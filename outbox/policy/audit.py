"""The acts that the audit knows, and how its chain of hashes is judged. PostgreSQL writes the chain, not this."""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple
from uuid import UUID


class Action(StrEnum):
    REPLAY_BATCH_ITEM = "REPLAY_BATCH_ITEM"
    REPLAY_BATCH_SKIPPED = "REPLAY_BATCH_SKIPPED"
    REPLAY_BATCH_SUMMARY = "REPLAY_BATCH_SUMMARY"
    REPLAY_CANCELLED = "REPLAY_CANCELLED"
    EVENT_DISCARDED = "EVENT_DISCARDED"
    EVENT_DELETED = "EVENT_DELETED"
    FLUSH_SUMMARY = "FLUSH_SUMMARY"
    EVENT_REQUESTED = "EVENT_REQUESTED"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    PAYLOAD_UNMASKED = "PAYLOAD_UNMASKED"
    WEBHOOK_REDELIVERED = "WEBHOOK_REDELIVERED"
    AUDIT_EXPORTED = "AUDIT_EXPORTED"
    AUDIT_PRUNE_SUMMARY = "AUDIT_PRUNE_SUMMARY"
    EVENTS_PRUNE_SUMMARY = "EVENTS_PRUNE_SUMMARY"
    REPAIR_SUMMARY = "REPAIR_SUMMARY"
    REFRESH_SUMMARY = "REFRESH_SUMMARY"
    BACKFILL_SUMMARY = "BACKFILL_SUMMARY"
    REBUILD_SWAPPED = "REBUILD_SWAPPED"
    VERSION_RAISED = "VERSION_RAISED"
    ENTITY_TYPE_DECLARED = "ENTITY_TYPE_DECLARED"
    TABLE_IGNORED = "TABLE_IGNORED"
    TABLE_WATCHED_AGAIN = "TABLE_WATCHED_AGAIN"


class Source(StrEnum):
    CLI = "cli"
    API = "api"
    CONSOLE = "console"
    DAEMON = "daemon"
    SQL = "sql"  # none of them: statements of one's own, found by PostgreSQL


@dataclass(frozen=True, slots=True)
class Actor:
    name: str
    source: Source
    role: str | None = None


FOR: Final = " for "  # `bot for alice`: the token `bot` acts, and says that alice asked it to


def people(name: str) -> frozenset[str]:
    """Whom a name names: who acts and for whom. Without case, width, blanks and what is invisible, so that no spelling
    makes one person two."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", name).casefold() if unicodedata.category(c) != "Cf")
    return frozenset(filter(None, (" ".join(part.split()) for part in [plain, *f" {plain} ".split(FOR)])))


# What no prune touches, whoever asks: the database's own function holds the number too (0009_audit).
LEAST_DAYS: Final = 7.0


class PruneOrder(NamedTuple):
    """Which rows may go, up to an id, and who says so; each step of it is written down by the database."""

    before: datetime
    max_id: int
    actor: Actor
    reason: str | None = None
    archived: bool | None = None


class AuditPruneStep(NamedTuple):
    removed: int
    last: int


class AuditPrunePreview(NamedTuple):
    rows: int
    oldest: datetime | None
    newest: datetime | None


class Entry(NamedTuple):
    """One row of the audit before PostgreSQL gives it its time, its id and its place in the chain."""

    action: Action
    actor: Actor
    reason: str | None = None
    batch_id: UUID | None = None
    event_id: UUID | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    trace_id: str | None = None
    detail: Mapping[str, Any] | None = None


class Link(NamedTuple):
    """One place of the chain: a row with what its hash covers, or, where `text` is None, a run of pruned rows with the
    last one's hash."""

    id: int
    hash: bytes
    prev_hash: bytes | None = None
    text: str | None = None
    since: int | None = None  # the run's first id; None: it is one row

    @property
    def first(self) -> int:
        return self.id if self.since is None else self.since


class ChainFinding(NamedTuple):
    id: int
    what: str


GENESIS: Final = sha256(b"search_outbox_audit").digest()


def follow_chain(links: Iterator[Link]) -> Iterator[ChainFinding]:
    """Every place where the chain does not hold. The head comes first, then the links by id, pruned before present."""
    head, last = next(links), Link(0, GENESIS)
    for link in links:
        if link.first <= last.id:
            yield ChainFinding(link.id, "inserted: its place belongs to a pruned row")
            continue
        if link.first > last.id + 1:
            yield ChainFinding(last.id + 1, f"removed: {link.first - last.id - 1} rows are missing and were not pruned")
        yield from _judge(link, last)
        last = link
    if last.id > head.id:
        yield ChainFinding(head.id + 1, f"inserted: {last.id - head.id} ids lie above the head of the chain")
    elif last.id < head.id:
        yield ChainFinding(last.id + 1, f"removed: the last {head.id - last.id} rows are missing and were not pruned")
    elif last.hash != head.hash:
        yield ChainFinding(last.id, "changed: its hash is not the head's")


def _judge(link: Link, last: Link) -> Iterator[ChainFinding]:
    if link.text is None or link.prev_hash is None:
        return
    if sha256(link.prev_hash + link.text.encode()).digest() != link.hash:
        yield ChainFinding(link.id, "changed: its hash does not cover what it says now")
    elif link.prev_hash != last.hash and link.id == last.id + 1:
        yield ChainFinding(link.id, "inserted or changed: it does not follow from the row before it")
