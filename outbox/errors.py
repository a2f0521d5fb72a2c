"""Owns the family of errors that people see and the exit code of each; it does not print and does not log.

The docstring of a class is its message, remedy included; `detail` says which one it was this time.
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
        """The class's own sentence, with this time's detail behind it."""
        text = " ".join(inspect.cleandoc(type(self).__doc__ or type(self).__name__).split())
        return f"{text} Detail: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with the configuration, and what to do about it."""

    variable: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.variable}: {self.what}. {self.remedy}"


class ConfigurationError(OutboxError):
    """The configuration is not usable. Correct what is listed and run `outbox config check`."""

    exit_code = 78

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__()

    @property
    def message(self) -> str:
        return "\n".join([super().message, *(f"  - {problem}" for problem in self.problems)])

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class SchemaMismatch(OutboxError):
    """The database schema does not fit this version. Run `outbox migrate status`, then `outbox migrate`;
    if the schema is newer than this program, install the newer program."""

    exit_code = 78


class NotPermitted(SchemaMismatch):
    """The database role lacks a right that this needs. Use the role that is made for it (docs/security.md: producer,
    projector, operator, reader), or grant it; nothing was changed."""


class PooledAddress(OutboxError):
    """A pooler in transaction mode stands before the database, and this needs a session of its own. Set
    OUTBOX_DIRECT_DATABASE_URL to PostgreSQL itself; everything else may stay behind the pooler. Nothing was changed."""

    exit_code = 78


class NoEncoding(OutboxError):
    """The database's encoding is SQL_ASCII: in it text is bytes of which nobody knows what they mean, and documents are
    UTF-8. Make a database with `create database NAME encoding 'UTF8' template template0` and load the data into it,
    saying its true encoding (PGCLIENTENCODING). Nothing was changed."""

    exit_code = 78


class WrongProduct(OutboxError):
    """The server at ELASTIC_URL is not Elasticsearch. Point ELASTIC_URL at Elasticsearch 8 or 9; nothing was
    written and no attempt was spent."""

    exit_code = 78


class WorkerIdTaken(OutboxError):
    """Another running worker uses this worker id. Leave OUTBOX_WORKER_ID unset, or give each its own."""

    exit_code = 78


class CannotListen(OutboxError):
    """The port for /metrics, /healthz and /readyz cannot be opened. Stop the program that uses it, or choose another
    with OUTBOX_METRICS_PORT or OUTBOX_HTTP_PORT (0 is off)."""

    exit_code = 78


class DependencyDown(OutboxError):
    """A server that this command needs does not answer. Run `outbox doctor` to see which, and try again."""

    exit_code = 75


class DatabaseDown(DependencyDown):
    """PostgreSQL does not answer. Start it, or correct DATABASE_URL (`outbox config print` shows it)."""


class NothingSent(DatabaseDown):
    """PostgreSQL does not say whether an index is being rebuilt, so nothing was sent. It goes on by itself when
    PostgreSQL answers in time."""


class LockHeld(DatabaseDown):
    """Another session holds a lock that this needs. Find it in pg_stat_activity (often `idle in transaction`) and let
    it end; nothing was changed."""


class ElasticsearchDown(DependencyDown):
    """Elasticsearch does not answer. Start it, or correct ELASTIC_URL (`outbox config print` shows it)."""


class DocumentsUnavailable(DependencyDown):
    """The view of documents cannot be read: it is gone, forbidden or too slow. Create it or grant SELECT on it
    (OUTBOX_DOCUMENTS names it); events with a payload go on meanwhile."""


class UsageError(OutboxError):
    """The command was called in a way it does not understand. See its `--help`."""

    exit_code = 2


class NotFound(OutboxError):
    """Nothing by that name is here. Look it up with `outbox list`; finished events may have been pruned."""


class Conflict(OutboxError):
    """It is not in a state that allows this. Look at it with `outbox show`, and try again."""


class PartlyDone(OutboxError):
    """Only a part was done. What was done stays done; run the command again for the rest."""

    exit_code = 3
