"""Owns the list of commands, in the order of the help page; each topic file beside it declares its own."""

from __future__ import annotations

from typing import Annotated

import typer

from outbox import __version__
from outbox.cli import (
    audit,
    config,
    console,
    discard,
    doctor,
    events,
    explain,
    index,
    migrate,
    pauses,
    producers,
    prune,
    rebuild,
    repair,
    replay,
    replays,
    run,
    stats,
    status,
    up,
    verify,
    webhook,
)
from outbox.cli.usage import PlainGroup

TOPICS = (
    up,
    run,
    console,
    status,
    events,
    stats,
    audit,
    explain,
    doctor,
    replay,
    replays,
    discard,
    prune,
    pauses,
    migrate,
    index,
    verify,
    repair,
    rebuild,
    producers,
    webhook,
    config,
)

app = typer.Typer(
    cls=PlainGroup,
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
for topic in TOPICS:
    app.add_typer(topic.commands)


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
