"""The command `console`, the web console's process, and `console token`. It reads flags and hands over to `app`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, flag, option
from outbox.errors import UsageError

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
      outbox console token alice --role operator --add
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
    add: bool = flag(False, "--add", "Also write its line into OUTBOX_CONSOLE_TOKENS_FILE.", show_default=False),
    json: Json = False,
) -> None:
    """Make a token and print it, once: only its hash is kept. A running console takes a changed file at once.

    viewer reads; operator also sees payloads, replays, discards and pauses; admin also flushes, prunes the audit and
    unmasks payloads.

    Examples:
      outbox console token alice --role operator
      OUTBOX_CONSOLE_TOKENS_FILE=tokens outbox console token ci --role viewer --add
    """
    made, line = cli.console_token(name, role)
    if add:
        _append(name, line)
    if json:
        cli.as_json({"name": name, "role": role, "token": made, "line": line})
        return
    cli.line(made)
    cli.note("\nThis token is shown once. Its line for OUTBOX_CONSOLE_TOKENS_FILE:" if not add else "\nAdded:")
    cli.note(line)


def _append(name: str, line: str) -> None:
    """For the owner's eyes only. A name that is there already is refused: two tokens of one name tell nothing."""
    file = cli.settings(require_database=False).console.tokens_file
    if file is None:
        raise UsageError("--add needs OUTBOX_CONSOLE_TOKENS_FILE")
    file.touch(mode=0o600, exist_ok=True)
    text = file.read_text("utf-8")
    if any(known.split(":")[0].strip() == name for known in text.splitlines()):
        raise UsageError(f"{name} has a line in {file} already: remove it first")
    glue = "" if not text or text.endswith("\n") else "\n"
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{glue}{line}\n")
