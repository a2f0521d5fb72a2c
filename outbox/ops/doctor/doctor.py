"""Checks everything that an installation stands on, each finding with its remedy; creates and checks target indexes.

Writes no document and corrects nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from outbox.errors import OutboxError
from outbox.ops.doctor import database, documents, event_log
from outbox.ops.doctor.database import DoctorSettings
from outbox.ops.status import QueueStatus
from outbox.ports import CreatedIndex, Finding, Level

if TYPE_CHECKING:
    from outbox.store.doctor import PostgresDoctor

Check = Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Doctor:
    """`connect` raises when PostgreSQL is down; `elasticsearch` says why the other server is, or its version."""

    connect: Callable[[], None]
    store: PostgresDoctor
    queue: Callable[[], QueueStatus]
    elasticsearch: Callable[[], Finding]
    index_check: Callable[[str], Iterable[Finding]]
    versions: documents.Versions
    targets: Sequence[str]
    index_of: Callable[[str], str]
    wanted: DoctorSettings
    nodes: Callable[[], Iterable[Finding]] = tuple  # of several, each one
    stream: Callable[[], Iterable[Finding]] = tuple  # where Kafka is the source
    connector: Callable[[], Iterable[Finding]] = tuple  # where Kafka Connect is to be asked
    transport: Callable[[], Iterable[Finding]] = tuple  # which logins leave this machine in clear
    replica: Callable[[], Iterable[Finding]] = tuple  # where comparisons read one
    names: Callable[[], Iterable[Finding]] = tuple  # other modules called outbox

    def examine(self) -> Iterator[Finding]:
        """All findings, one after the other as they are made; what cannot be checked is reported, not skipped."""
        yield from guarded("names", self.names)
        yield from guarded("transport", self.transport)
        reached = yield from self._database()
        yield from guarded("kafka", self.stream)
        yield from guarded("connector", self.connector)
        yield from self._elasticsearch(reached)

    def _database(self) -> Generator[Finding, None, bool]:
        try:
            self.connect()
        except OutboxError as error:
            remedy = "Start PostgreSQL, or correct DATABASE_URL (`outbox config print` shows it)."
            yield Finding("database", Level.BAD, error.detail or error.message, remedy)
            return False
        yield from guarded("database", lambda: database.server(self.store, self.wanted))
        yield from guarded("replica", self.replica)
        schema = yield from guarded("schema", lambda: database.schema(self.store, self.wanted))
        if not is_well(schema):
            return False
        yield from guarded("server_speed", lambda: database.speed(self.store))
        yield from guarded("privileges", lambda: database.privileges(self.store))
        yield from guarded("roles", lambda: database.roles(self.store))
        yield from guarded("schema_rights", lambda: database.creators(self.store))
        yield from guarded("documents", lambda: documents.view(self.store, self.wanted.view))
        yield from guarded("types", lambda: documents.types(self.store))
        yield from guarded("attached", lambda: documents.attached(self.store.attachments()))
        yield from guarded("covered", lambda: documents.covered(self.store, self.wanted.view))
        yield from guarded("versions", lambda: documents.equal_versions(self.store))
        yield from guarded("sequence", lambda: documents.version_raised(self.store))
        yield from guarded("sequence", lambda: documents.sequence_behind(self.store))
        slot, days = self.wanted.log_slot, self.wanted.log_days
        yield from guarded(event_log.LOG, lambda: event_log.event_log(self.store.event_log(slot), slot, days))
        yield from guarded("queue", lambda: database.work(self.queue()))
        return True

    def _elasticsearch(self, database_reached: bool) -> Iterator[Finding]:
        answer = self.elasticsearch()
        yield answer
        nodes = yield from guarded("node", self.nodes)
        if not is_well(nodes):
            return
        if answer.level is Level.BAD:
            return
        for target in self.targets:
            yield from guarded("index", partial(self.index_check, target))
        if database_reached:
            exam = (self.store, self.versions, self.index_of)
            yield from guarded("versions", lambda: documents.versions_ahead(*exam))


def guarded(name: str, check: Check) -> Generator[Finding, None, list[Finding]]:
    """A check that is refused or takes too long is a finding itself; the others go on. Returns what was found."""
    found: list[Finding] = []
    try:
        for finding in check():
            found.append(finding)
            yield finding
    except OutboxError as error:
        found.append(Finding(name, Level.UNKNOWN, error.detail or error.message, "Check by hand, or as another role."))
        yield found[-1]
    return found


def is_well(findings: Iterable[Finding]) -> bool:
    """Warnings are advice; only what is bad makes the command fail."""
    return all(finding.level is not Level.BAD for finding in findings)


@dataclass(frozen=True, slots=True)
class IndexDesk:
    create: Callable[[str, Mapping[str, Any] | None, Mapping[str, Any] | None], CreatedIndex]  # mappings, settings
    check_index: Callable[[str], Iterable[Finding]]
    targets: Sequence[str]
    require_server: Callable[[], Finding]  # raises where nobody answers, or not Elasticsearch

    def check(self, names: Sequence[str]) -> list[Finding]:
        """The server first: where nobody answers there is nothing to be found out about an index."""
        server = self.require_server()
        return [server, *(finding for name in names for finding in self.check_index(name))]
