"""Looks at everything an installation stands on and says what is wrong, each finding with its remedy. Mends nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from outbox.errors import OutboxError
from outbox.ops import database_findings, document_findings, queue_findings
from outbox.ops.database_findings import DatabaseExam, Wanted
from outbox.ops.document_findings import DocumentExam, IndexExam
from outbox.ops.queue_findings import QueueExam
from outbox.ports import Finding, IndexCheck, Level

Look = Callable[[], Iterable[Finding]]


class DoctorStore(DatabaseExam, DocumentExam, Protocol):
    pass


@dataclass(frozen=True, slots=True)
class Doctor:
    """`connect` raises when PostgreSQL is away; `elasticsearch` says why the other server is, or its version."""

    connect: Callable[[], None]
    store: DoctorStore
    queue: QueueExam
    elasticsearch: Callable[[], Finding]
    index_check: IndexCheck
    index: IndexExam
    targets: Sequence[str]
    index_of: Callable[[str], str]
    wanted: Wanted

    def examine(self) -> Iterator[Finding]:
        """All findings, one after the other as they are made; what cannot be looked at is said, not skipped."""
        database = yield from self._database()
        yield from self._elasticsearch(database)

    def _database(self) -> Generator[Finding, None, bool]:
        try:
            self.connect()
        except OutboxError as error:
            remedy = "Start PostgreSQL, or correct DATABASE_URL (`outbox config print` shows it)."
            yield Finding("database", Level.BAD, error.detail or error.message, remedy)
            return False
        yield from guarded("database", lambda: database_findings.server(self.store, self.wanted))
        schema = yield from guarded("schema", lambda: database_findings.schema(self.store, self.wanted))
        if not is_well(schema):
            return False
        yield from guarded("privileges", lambda: database_findings.privileges(self.store))
        yield from guarded("roles", lambda: database_findings.roles(self.store))
        yield from guarded("documents", lambda: document_findings.view(self.store, self.wanted.view))
        yield from guarded("mixture", lambda: document_findings.mixtures(self.store))
        yield from guarded("versions", lambda: document_findings.equal_versions(self.store))
        yield from guarded("sequence", lambda: document_findings.version_raised(self.store))
        yield from guarded("queue", lambda: queue_findings.queue(self.queue))
        return True

    def _elasticsearch(self, database: bool) -> Iterator[Finding]:
        answer = self.elasticsearch()
        yield answer
        if answer.level is Level.BAD:
            return
        for target in self.targets:
            yield from guarded("index", partial(self.index_check.check, target))
        if database:
            exam = (self.store, self.index, self.index_of)
            yield from guarded("payload", lambda: document_findings.oldest_payload(*exam))
            yield from guarded("versions", lambda: document_findings.versions_ahead(*exam))


def guarded(name: str, look: Look) -> Generator[Finding, None, list[Finding]]:
    """A look that is refused or takes too long is a finding itself; the others go on. Returns what was found."""
    found: list[Finding] = []
    try:
        for finding in look():
            found.append(finding)
            yield finding
    except OutboxError as error:
        found.append(Finding(name, Level.UNKNOWN, error.detail or error.message, "Look by hand, or as another role."))
        yield found[-1]
    return found


def is_well(findings: Iterable[Finding]) -> bool:
    """Warnings are advice; only what is bad makes the command fail."""
    return all(finding.level is not Level.BAD for finding in findings)
