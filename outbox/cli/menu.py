"""Owns the list of commands, in the order of the help page; each file declares its own, imported when it runs.

Usage errors repeat what was typed, and none of it may steer the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import cleandoc
from textwrap import indent
from typing import Annotated, Any, Final, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from outbox import __version__
from outbox.cli import visible

WRONG_CALL: Any = typer.BadParameter.__mro__[2]  # the base of all usage errors; it has no public name


@contextmanager
def quoted_as_text() -> Iterator[None]:
    """typer escapes control characters by itself, but lets direction marks through."""
    try:
        yield
    except WRONG_CALL as error:
        error.message = visible(error.message, keep="\n")
        raise


class PlainGroup(TyperGroup):
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with quoted_as_text():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        with quoted_as_text():
            return super().invoke(*args, **kwargs)


class PlainCommand(TyperCommand):
    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with quoted_as_text():
            return super().make_context(*args, **kwargs)


class MenuEntry(NamedTuple):
    """One line of the menu. `text` is the first paragraph of the command's own help; a unit test compares them."""

    topic: str  # the module beside this one that declares the command
    name: str
    panel: str
    text: str


class LaterCommand(TyperCommand):
    """All commands together take 0.08 s of CPU to import and declare, one takes 0.01 s."""

    def __init__(self, entry: MenuEntry) -> None:
        super().__init__(entry.name, help=entry.text, rich_help_panel=entry.panel)
        self._entry: Final = entry

    def declared(self) -> Any:
        """The command as its own file declares it: a command, or a group with commands of its own."""
        topic = import_module(f"outbox.cli.{self._entry.topic}")
        return typer.main.get_group(topic.commands).commands[self._entry.name]

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """From here on typer deals with the declared command: options, help and completion are that command's."""
        return self.declared().make_context(*args, **kwargs)


class Menu(PlainGroup):
    entries: tuple[MenuEntry, ...] = ()

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for entry in self.entries:
            self.add_command(LaterCommand(entry))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """As plain text: boxes need rich, which takes 0.15 s of CPU to import."""
        self.format_usage(ctx, formatter)
        formatter.write(f"\n{indent(cleandoc(self.help or ''), '  ')}\n")
        self.format_options(ctx, formatter)
        for panel in dict.fromkeys(entry.panel for entry in self.entries):
            with formatter.section(panel):
                formatter.write_dl([(entry.name, entry.text) for entry in self.entries if entry.panel == panel])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        told = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(told)


ENTRIES = (
    MenuEntry(
        "up",
        "up",
        "Run",
        "Start everything on this machine: PostgreSQL, Elasticsearch, sample, projector, console. Ctrl-C stops it.",
    ),
    MenuEntry(
        "run",
        "run",
        "Run",
        "Run the projector: claim events, write them to Elasticsearch, settle them, until stopped.",
    ),
    MenuEntry(
        "console", "console", "Run", "Serve the web console at /ops/queue and the API at /api/v1, until stopped."
    ),
    MenuEntry(
        "status",
        "status",
        "Inspect",
        "Show the status: backlog, oldest event, rate, failures by reason, entity types, workers, pauses.",
    ),
    MenuEntry(
        "status",
        "wait",
        "Inspect",
        "Wait until everything that was committed before is settled: done, failed or discarded.",
    ),
    MenuEntry(
        "events",
        "list",
        "Inspect",
        "List events: what is open or failed, unless --status, --id or --entity-id ask for more. The newest first.",
    ),
    MenuEntry(
        "events",
        "show",
        "Inspect",
        "Show one event with all that is recorded: state, times, error, payload, attempts, and its entity's others.",
    ),
    MenuEntry(
        "status",
        "stats",
        "Inspect",
        "Show failures by entity type, reason and kind, by hour, and what became of events. Never reads done rows.",
    ),
    MenuEntry("audit", "audit", "Inspect", "List, export, prune and verify the audit log."),
    MenuEntry(
        "events",
        "explain-error",
        "Inspect",
        "Say how a reply of Elasticsearch is classified, by which rule, and what happens to the event.",
    ),
    MenuEntry(
        "doctor",
        "doctor",
        "Inspect",
        "Check the setup: servers, schema, rights, view, index, workers. Exit 1 if there is a problem.",
    ),
    MenuEntry(
        "replay",
        "replay",
        "Act",
        "Put failed events back to pending, so that they are projected again; with --id also discarded ones.",
    ),
    MenuEntry("replay", "replays", "Act", "List, show and cancel replays."),
    MenuEntry(
        "discard",
        "discard",
        "Act",
        "Discard one pending or failed event. The row stays; `outbox replay --id` brings it back.",
    ),
    MenuEntry(
        "discard",
        "flush",
        "Act",
        "Discard all failed events that match, if there are exactly as many as expected. The rows stay.",
    ),
    MenuEntry(
        "prune",
        "prune",
        "Act",
        "Remove what is old: done and discarded events, and audit rows by OUTBOX_AUDIT_TTL_DAYS, in small steps.",
    ),
    MenuEntry(
        "pauses",
        "pause",
        "Act",
        "Stop all projectors from claiming, within two seconds; what is in flight is finished. Nothing is lost.",
    ),
    MenuEntry(
        "pauses", "resume", "Act", "End a pause; or let the events of one fingerprint fail that the brake holds back."
    ),
    MenuEntry(
        "migrate",
        "migrate",
        "Install",
        "Create the tables, or bring them up to date. Safe to run twice at once, and to kill anywhere.",
    ),
    MenuEntry("doctor", "index", "Install", "Create and check the target index."),
    MenuEntry("kafka", "kafka", "Install", "Configure and check the connector that brings the event log to Kafka."),
    MenuEntry(
        "verify",
        "verify",
        "Index",
        "Compare PostgreSQL with the index: missing, stale, orphaned and different documents. Changes nothing.",
    ),
    MenuEntry(
        "verify",
        "repair",
        "Index",
        "Compare PostgreSQL with the index and write events for what differs, and for nothing else.",
    ),
    MenuEntry(
        "refresh",
        "refresh",
        "Index",
        "Write refresh events: the projectors make each document equal to what the view says now, or delete it.",
    ),
    MenuEntry(
        "refresh",
        "backfill",
        "Index",
        "Fill the index straight from the view, page by page in key order, beside running projectors.",
    ),
    MenuEntry(
        "rebuild",
        "rebuild",
        "Index",
        "Build the index anew from PostgreSQL while it is written to, then swap the alias in one move.",
    ),
    MenuEntry(
        "attach",
        "attach",
        "Install",
        "Install triggers that write events for every change of a table, in the same transaction; deletes included.",
    ),
    MenuEntry(
        "attach",
        "detach",
        "Install",
        "Remove the triggers; changes of the table are no longer projected. Events that were written stay.",
    ),
    MenuEntry(
        "types",
        "types",
        "Install",
        "Show what keeps each entity type, the view or payloads, and whose its versions are.",
    ),
    MenuEntry("webhook", "webhook", "Install", "Send a test webhook, or check a signature."),
    MenuEntry("config", "config", "Install", "Check and show the settings."),
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
    help="""Project committed rows of PostgreSQL into Elasticsearch or OpenSearch, at least once, convergent by version.

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
        typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    pass
