"""The commands that read the settings: `config check` and `config print`. They change nothing."""

from __future__ import annotations

import typer

from outbox import cli
from outbox.cli import Json

commands = typer.Typer()
config = typer.Typer(no_args_is_help=True, help="Check and show the settings.")
commands.add_typer(config, name="config", rich_help_panel="Install")


@config.command()
def check(json: Json = False) -> None:
    """Read all settings and report every problem at once, each with its remedy (exit 78).

    Connects to nothing; `outbox doctor` does.

    Examples:
      outbox config check
      OUTBOX_LEASE_SECONDS=1 outbox config check
    """
    settings = cli.settings()
    given = sorted(name for name, found in settings.redacted().items() if found["source"] != "default")
    cli.answer({"ok": True, "set": given}, f"ok: {len(given)} settings given, the rest are defaults", json=json)


@config.command(name="print")
def print_(json: Json = False) -> None:
    """Print every setting with its value and where that came from; secrets are masked.

    Examples:
      outbox config print
      outbox config print --json | jq '.OUTBOX_LEASE_SECONDS.value'
    """
    settings = cli.settings(require_database=False)
    found = settings.redacted()
    cli.answer(found, lambda: cli.tables([{"variable": name, **about} for name, about in found.items()]), json=json)
