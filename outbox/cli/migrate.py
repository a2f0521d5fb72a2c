"""The command `migrate` with `status`, `plan` and `sql`: it prints what the store says and does."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from outbox import cli
from outbox.cli import Json, flag, option
from outbox.daemon.startup import begin
from outbox.facts import DatabaseLost, Fact
from outbox.policy.schema import SchemaStatus
from outbox.store.schema import migrate as migrations

commands = typer.Typer()
migrate = typer.Typer()
commands.add_typer(migrate, name="migrate", rich_help_panel="Install")

# The schema of 0.1.0: no older program is there to go back to. The headers in sql/ say how each file is undone.
EARLIEST = 13

AFTER_NO_LOG = (
    "producers write to search_outbox_events. search_outbox_log stays: let the connector read to the end"
    " (`outbox doctor` says what it has not read); docs/kafka-log.md says how to drop it"
)

ByType = Annotated[bool, option("--by-type", "Also indexes for claims by entity type.")]
ByEntity = Annotated[bool, option("--by-entity", "Also an index to find done events of an entity.")]
Notify = Annotated[bool, option("--notify", "Also the trigger that wakes OUTBOX_LISTEN.")]
Log = Annotated[bool, option("--log", "Also search_outbox_log: producers write there, for Kafka.")]


@migrate.callback(invoke_without_command=True)
def apply(
    context: typer.Context,
    by_type: ByType = False,
    by_entity: ByEntity = False,
    notify: Notify = False,
    log: bool | None = flag(
        None,
        "--log/--no-log",
        "Let producers write to search_outbox_log, which Debezium reads for Kafka; or no longer.",
    ),
    drop_slow_indexes: bool = flag(
        False, "--drop-slow-indexes", "Drop, concurrently, the indexes that make every claim slow."
    ),
    finish: bool = flag(
        False, "--finish", "The second step of an upgrade, when no projector of the older program runs."
    ),
    no_wait: bool = flag(False, "--no-wait", "Exit with code 75 if the database does not answer, instead of waiting."),
    json: Json = False,
) -> None:
    """Create the tables, or bring them up to date. Safe to run twice at once, and to kill anywhere.

    An existing search_outbox_events is adopted: nothing is rewritten and producers continue. Uses
    OUTBOX_DIRECT_DATABASE_URL where that is set. Waits for a database that does not answer, as `outbox run` does.

    An upgrade has two steps: this, beside running projectors of both programs, and --finish, when the older ones are
    gone: from then on PostgreSQL refuses their claims.

    Examples:
      outbox migrate
      outbox migrate --by-type --notify
      outbox migrate --finish
    """
    if context.invoked_subcommand is not None:
        return
    settings = cli.settings()
    url = settings.database.direct_dsn
    chosen: dict[str, Any] = {"by_type": by_type, "by_entity": by_entity, "notify": notify, "log": bool(log)}
    chosen |= {"view": settings.documents, "most_bytes": settings.batch.max_document_bytes}
    chosen |= {"drop_slow_indexes": drop_slow_indexes}
    applied: list[str] = []
    steps: list[Callable[[], object]] = [lambda: applied.extend(migrations.migrate(url, **chosen, say=cli.note))]
    if finish:
        steps.append(lambda: _finish(url, settings.documents))
    if log is False:
        steps.append(lambda: applied.extend(migrations.turn_log_off(url, say=cli.note)))
    begin(steps, _say_lost, threading.Event(), patient=not no_wait)
    if log is False:
        cli.note(AFTER_NO_LOG)
    told = f"applied {len(applied)}: {', '.join(applied)}" if applied else "nothing to do"
    cli.answer({"applied": applied}, told, json=json)


def _say_lost(fact: Fact) -> None:
    if isinstance(fact, DatabaseLost):
        cli.note(f"PostgreSQL does not answer: {fact.error}")


def _finish(url: str, view: str) -> None:
    for kind in migrations.finish(url, view, say=cli.note):
        cli.note(f"to write its documents once more run: outbox backfill --type {shlex.quote(kind)}")


@migrate.command()
def status(json: Json = False) -> None:
    """Show which migrations are applied, which are missing, and indexes that slow claims down. Exit 0 in any case.

    Examples:
      outbox migrate status
      outbox migrate status --json | jq .schema.state
    """
    found = migrations.status(cli.settings().database.direct_dsn)
    cli.answer(found, lambda: cli.tables(_shown(found), str(found.schema)), json=json)
    if any(not index.kept for index in found.slow_indexes):
        cli.note("they slow every claim: run `outbox migrate --drop-slow-indexes`")


def _shown(found: SchemaStatus) -> dict[str, Any]:
    """Without checksums: they are wider than a terminal."""
    names = ("name", "mode", "applied_at", "applied_by", "duration_ms")
    return {**asdict(found), "applied": [{name: getattr(each, name) for name in names} for each in found.applied]}


@migrate.command()
def plan(
    by_type: ByType = False,
    by_entity: ByEntity = False,
    notify: Notify = False,
    log: Log = False,
    json: Json = False,
) -> None:
    """Show what `outbox migrate` would do, each step with its reason. Changes nothing.

    Examples:
      outbox migrate plan --by-type
    """
    chosen = {"by_type": by_type, "by_entity": by_entity, "notify": notify, "log": log}
    steps = migrations.plan(cli.settings().database.direct_dsn, **chosen)
    cli.answer([step._asdict() for step in steps], "" if steps else "nothing to do", json=json)


BackTo = Annotated[
    int | None, option("--back-to", "Instead, take back what is newer than this schema number.", min=EARLIEST)
]


@migrate.command()
def sql(
    by_type: ByType = False,
    by_entity: ByEntity = False,
    notify: Notify = False,
    log: Log = False,
    back_to: BackTo = None,
) -> None:
    """Print the whole schema as a script for psql, for a database without an events table. Connects to nothing.

    With --back-to, print the way back to an older program instead: its number is what its own `outbox migrate status`
    says it needs. Daemons of the newer program must have stopped.

    Examples:
      outbox migrate sql > outbox.sql
      outbox migrate sql --back-to 13 > back.sql
    """
    if back_to is not None:
        cli.line(migrations.back(back_to))
    else:
        cli.line(migrations.script(by_type=by_type, by_entity=by_entity, notify=notify, log=log))
