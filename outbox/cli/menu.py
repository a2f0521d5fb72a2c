"""Owns the list of commands, in the order of the help page; each topic file declares its own, imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox import __version__
from outbox.cli.later import Entry, Menu

ENTRIES = (
    Entry(
        "up",
        "up",
        "Run",
        "Start everything on this machine: PostgreSQL, Elasticsearch, sample, projector, console. Ctrl-C stops it.",
    ),
    Entry(
        "run",
        "run",
        "Run",
        "Run the projector: claim events, write them to Elasticsearch, settle them, until told to stop.",
    ),
    Entry(
        "console",
        "console",
        "Run",
        "Serve the web console at /ops/queue and the API at /api/v1, until told to stop.",
    ),
    Entry(
        "status",
        "status",
        "Look",
        "Show how it is: backlog, oldest event, rate, failures by reason, entity types, workers, pauses.",
    ),
    Entry(
        "status",
        "wait",
        "Look",
        "Wait until everything that was committed before is settled: done, failed or discarded.",
    ),
    Entry(
        "events",
        "list",
        "Look",
        "List events: what is open or failed, unless --status, --id or --entity-id ask for more. The newest first.",
    ),
    Entry(
        "events",
        "show",
        "Look",
        "Show one event with all that is recorded: state, times, error, payload, attempts, and its entity's others.",
    ),
    Entry(
        "stats",
        "stats",
        "Look",
        "Show failures by entity type, reason and kind, by hour, and what became of events. Never reads done rows.",
    ),
    Entry("audit", "audit", "Look", "Who did what: look, export, prune, verify."),
    Entry(
        "explain",
        "explain-error",
        "Look",
        "Say how a reply of Elasticsearch is classified, by which rule, and what happens to the event.",
    ),
    Entry(
        "doctor",
        "doctor",
        "Look",
        "Examine everything that the projector stands on; each finding with its remedy. Exit 1 if there is a problem.",
    ),
    Entry(
        "replay",
        "replay",
        "Act",
        "Put failed events back to pending, so that they are projected again; with --id also discarded ones.",
    ),
    Entry("replays", "replays", "Act", "Look at replays, and cancel one."),
    Entry(
        "discard",
        "discard",
        "Act",
        "Give one pending or failed event up. The row stays; `outbox replay --id` brings it back.",
    ),
    Entry(
        "discard",
        "flush",
        "Act",
        "Give up all failed events that match, if they are as many as you expect. The rows stay as discarded.",
    ),
    Entry(
        "prune",
        "prune",
        "Act",
        "Remove what is old: done and discarded events, and audit rows by OUTBOX_AUDIT_TTL_DAYS, in small steps.",
    ),
    Entry(
        "pauses",
        "pause",
        "Act",
        "Stop all projectors from claiming, within two seconds; what is in flight is finished. Nothing is lost.",
    ),
    Entry(
        "pauses",
        "resume",
        "Act",
        "End a pause; or let the events of one fingerprint fail that the brake holds back.",
    ),
    Entry(
        "migrate",
        "migrate",
        "Install",
        "Create the tables, or bring them up to date. Safe to run twice at once, and to kill anywhere.",
    ),
    Entry("index", "index", "Install", "Create and check the target index."),
    Entry(
        "verify",
        "verify",
        "Index",
        "Compare PostgreSQL with the index: missing, stale, orphaned and different documents. Changes nothing.",
    ),
    Entry(
        "repair",
        "repair",
        "Index",
        "Compare PostgreSQL with the index and write events for what differs, and for nothing else.",
    ),
    Entry(
        "refresh",
        "refresh",
        "Index",
        "Write refresh events: the projectors make each document equal to what the view says now, or delete it.",
    ),
    Entry(
        "backfill",
        "backfill",
        "Index",
        "Fill the index straight from the view, page by page in key order, beside running projectors.",
    ),
    Entry(
        "rebuild",
        "rebuild",
        "Index",
        "Build the index anew from PostgreSQL while it is written to, then swap the alias in one move.",
    ),
    Entry(
        "producers",
        "attach",
        "Install",
        "Install triggers that write events for every change of a table, in the same transaction; deletes included.",
    ),
    Entry(
        "producers",
        "detach",
        "Install",
        "Remove the triggers; changes of the table are no longer projected. Events that were written stay.",
    ),
    Entry("webhook", "webhook", "Install", "Try the receiver, and check a signature."),
    Entry("config", "config", "Install", "Check and show the settings."),
)


class OutboxMenu(Menu):
    entries = ENTRIES


app = typer.Typer(
    cls=OutboxMenu,
    no_args_is_help=True,
    add_completion=True,
    # typer's own tracebacks print local variables, and with them passwords.
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="""Project committed rows of PostgreSQL into Elasticsearch, at least once, convergent by version.

    Settings come from the environment: `outbox config print` shows them, docs/configuration.md explains them.
    Data goes to stdout, all else to stderr; --json is on every command that prints data.
    Exit codes: 0 done, 1 failed, 2 usage, 3 partly done, 75 a server is down, 78 configuration, 130/143 by signal.

    Examples:
      outbox up                        # everything on sample data, nothing to install
      outbox migrate && outbox run     # the projector on your own database
      outbox status --watch
    """,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"outbox {__version__}")
        raise typer.Exit


@app.callback()
def outbox(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass
