"""Owns the errors that people see and the exit code of each; it does not print and does not log.

The docstring of a class is its message, with the remedy. `detail` says what happened in this case.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


class OutboxError(Exception):
    """The command failed. Run it again with OUTBOX_LOG_LEVEL=debug to see each step."""

    exit_code: ClassVar[int] = 1

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The class's text, followed by this error's detail."""
        text = " ".join(inspect.cleandoc(type(self).__doc__ or type(self).__name__).split())
        return f"{text} Detail: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class ConfigProblem:
    """One invalid part of the configuration, and how to correct it."""

    variable: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.variable}: {self.what}. {self.remedy}"


class ConfigurationError(OutboxError):
    """The configuration is invalid. Correct what is listed and run `outbox config check`."""

    exit_code = 78

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__()

    @property
    def message(self) -> str:
        return "\n".join([super().message, *(f"  - {problem}" for problem in self.problems)])


class SchemaMismatch(OutboxError):
    """The database schema does not match this version of the program. Run `outbox migrate status`, then
    `outbox migrate`. If the schema is newer than the program, upgrade the program."""

    exit_code = 78


class NotPermitted(SchemaMismatch):
    """The database role lacks a privilege. Use the role for this task (docs/security.md: producer, projector, operator,
    reader), or grant the privilege. Nothing was changed."""


class PooledAddress(OutboxError):
    """DATABASE_URL goes through a pooler in transaction mode, but this needs its own session. Set
    OUTBOX_DIRECT_DATABASE_URL to PostgreSQL itself. Everything else may use the pooler. Nothing was changed."""

    exit_code = 78


class NoEncoding(OutboxError):
    """The database's encoding is SQL_ASCII, so the encoding of its text is unknown. Documents must be UTF-8. Create a
    database with `create database NAME encoding 'UTF8' template template0` and load the data into it with its true
    encoding in PGCLIENTENCODING. Nothing was changed."""

    exit_code = 78


class WrongProduct(OutboxError):
    """The server at ELASTIC_URL is not one that this program writes to. Set ELASTIC_URL to Elasticsearch 8 or 9, or
    OpenSearch 2 or 3. Nothing was written and no attempt was counted."""

    exit_code = 78


class KafkaClientMissing(OutboxError):
    """Kafka was asked for, but its client `confluent_kafka` is not installed. Run `pip install
    'outbox-projector[kafka]'`; or, to take the events from PostgreSQL, unset OUTBOX_SOURCE."""

    exit_code = 78


class WorkerIdTaken(OutboxError):
    """Another running worker uses this worker id. Leave OUTBOX_WORKER_ID unset, or give each worker its own."""

    exit_code = 78


class OtherTarget(OutboxError):
    """A running worker of this database writes an entity type to another index, and both would work on one queue of
    events. Correct ELASTIC_INDEX or ELASTIC_INDEX_MAP, or stop that worker first; two projections need two
    databases."""

    exit_code = 78


class CannotListen(OutboxError):
    """The port for /metrics, /healthz and /readyz cannot be opened. Stop the program that uses it, or choose another
    port with OUTBOX_METRICS_PORT or OUTBOX_HTTP_PORT (0 is off)."""

    exit_code = 78


class DependencyDown(OutboxError):
    """A server that this command needs does not answer. Run `outbox doctor` to see which one, and try again."""

    exit_code = 75


class DatabaseDown(DependencyDown):
    """PostgreSQL does not answer. Start it, or correct DATABASE_URL (`outbox config print` shows it)."""


class DatabaseAway(DatabaseDown):
    __doc__ = DatabaseDown.__doc__  # it ended the session, or gave none: not for what it was asked


class NothingSent(DatabaseDown):
    """PostgreSQL did not answer whether an index is being rebuilt, so nothing was sent. Work resumes automatically when
    PostgreSQL answers in time."""


class NotStored(DependencyDown):
    """PostgreSQL does not answer, and records of a batch need it: one to be stored, or to be checked against newer
    deletes. Their partition waits and no offset above them is committed. Work resumes automatically when PostgreSQL
    answers."""


class StreamDown(DependencyDown):
    """Kafka does not answer, or refuses this client. Check KAFKA_BOOTSTRAP_SERVERS, the security settings and the topic
    (`outbox config print` shows them)."""


class LockHeld(DatabaseDown):
    """Another session holds a lock that this needs. Find the session in pg_stat_activity (often `idle in transaction`)
    and end it. Nothing was changed."""


class ElasticsearchDown(DependencyDown):
    """The search server does not answer. Start it, or correct ELASTIC_URL (`outbox config print` shows it)."""


class DocumentsUnavailable(DependencyDown):
    """The view of documents cannot be read: it is missing, not permitted or too slow. Create it or grant SELECT on it
    (OUTBOX_DOCUMENTS names it). Events with a payload are processed meanwhile."""


class UsageError(OutboxError):
    """The command's arguments are invalid. See its `--help`."""

    exit_code = 2


class NoTransaction(UsageError):
    """The connection is in autocommit: the event would be committed apart from its change, and one of the two could be
    lost. Open a transaction around both. Nothing was written."""


class WrongConnection(UsageError):
    """Events are written with the connection that makes the change: of psycopg, SQLAlchemy, Django or asyncpg. An
    engine or a pool would open another. Nothing was written."""


class WrongEntity(UsageError):
    """An event names its entity by type and id: the type is text, the id is text, an integer, a Decimal or a
    UUID. Nothing was written."""


class WrongArgument(UsageError):
    """An argument of a call of the library is invalid. Correct it in your program, as the detail says."""


class NotFound(OutboxError):
    """Not found. See `outbox list`; finished events may have been pruned."""


class Conflict(OutboxError):
    """The current state does not allow this. Check it with `outbox show`, and try again."""


class PartlyDone(OutboxError):
    """Only a part was done, and stays done. Run the command again for the rest."""

    exit_code = 3
