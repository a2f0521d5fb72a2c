"""The command `console`, the web console's process, and `console token`. It reads flags and hands over to `app`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, flag, option

commands = typer.Typer()
console = typer.Typer()
commands.add_typer(console, name="console", rich_help_panel="Run")


class TokenRole(StrEnum):
    """Each may what the ones before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@console.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    host: str | None = flag(None, "--host", "Address to listen on [127.0.0.1]."),
    port: int | None = flag(None, "--port", "Port [8090]; 0 takes any free one."),
) -> None:
    """Serve the web console at /ops/queue and the API at /api/v1, until stopped.

    On loopback it needs no token. On any other address OUTBOX_CONSOLE_TOKENS_FILE is required: one line per person,
    made by `outbox console token`. It has its own small pool; a busy console takes nothing from the projector.

    Examples:
      outbox console
      OUTBOX_CONSOLE_TOKENS_FILE=tokens outbox console --host 0.0.0.0
    """
    if context.invoked_subcommand is None:
        settings = cli.settings(OUTBOX_CONSOLE_HOST=host, OUTBOX_CONSOLE_PORT=port)
        cli.run_console(settings, _tell)


def _tell(address: str) -> None:
    """Data: with port 0 nobody else knows it. A reader behind a pipe gets it at once."""
    cli.line(f"console: {address}")
    sys.stdout.flush()


@console.command()
def token(
    name: Annotated[str, typer.Argument(help="Whose token it is; shown in the audit.", metavar="NAME")],
    role: Annotated[TokenRole, option("--role", "What it may do.")],
    json: Json = False,
) -> None:
    """Make a token and print it, once: only its hash is kept. A running console takes a changed file at once.

    viewer reads; operator also sees payloads, replays, discards and pauses; admin also flushes, prunes the audit and
    unmasks payloads.

    Examples:
      outbox console token alice --role operator
      outbox console token ci --role viewer --json | jq -r .line >> tokens
    """
    made, line = cli.console_token(name, role)
    if json:
        cli.as_json({"name": name, "role": role, "token": made, "line": line})
        return
    cli.line(made)
    cli.note("\nThis token is shown once. Its line for OUTBOX_CONSOLE_TOKENS_FILE:")
    cli.note(line)
