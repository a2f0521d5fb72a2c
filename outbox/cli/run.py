"""The command `run`, the daemon. It reads flags and hands over to `app`."""

from __future__ import annotations

import typer

from outbox import cli
from outbox.cli import flag
from outbox.errors import PartlyDone

commands = typer.Typer()


@commands.command(rich_help_panel="Run")
def run(
    entity_type: list[str] | None = flag(None, "--entity-type -t", "Claim only this entity type; repeatable.", "TYPE"),
    once: bool = flag(False, "--once", "One claim per lane, settle, exit."),
    max_runtime: float | None = flag(None, "--max-runtime", "Drain and exit after this many seconds.", "S"),
    no_wait: bool = flag(False, "--no-wait", "Exit with code 75 if the database does not answer, instead of waiting."),
) -> None:
    """Run the projector: claim events, write them to Elasticsearch, settle them, until stopped.

    SIGTERM or Ctrl-C drains: what is in flight is finished or released, then the program exits with 0;
    a second signal ends it at once. Logs go to stderr; metrics and health pages are at OUTBOX_METRICS_PORT.

    Examples:
      outbox run
      outbox run --once --no-wait           # for cron
      outbox run --entity-type article --max-runtime 3600
    """
    types = ",".join(entity_type) if entity_type else None
    settings = cli.settings(OUTBOX_MAX_RUNTIME_SECONDS=max_runtime, OUTBOX_ENTITY_TYPES=types)
    if not cli.run_daemon(settings, once=once, patient=not no_wait):
        raise PartlyDone("the database did not answer while draining; the leases of the remaining events will expire")
