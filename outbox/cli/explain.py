"""The command `explain-error`: how a reply, or a stored failure, is classified and why."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from outbox.cli import output, session
from outbox.cli.events import event_id
from outbox.cli.output import Json
from outbox.errors import UsageError

commands = typer.Typer()


@commands.command(name="explain-error", rich_help_panel="Look")
def explain_error(
    reply: Annotated[
        str | None, typer.Argument(help="The reply as JSON; left out or -: read from stdin.", metavar="[REPLY]")
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Explain this stored event instead.", metavar="ID")] = None,
    status: Annotated[
        int | None, typer.Option("--status", help="HTTP status, where the reply does not hold it.", metavar="CODE")
    ] = None,
    op: Annotated[str, typer.Option("--op", help="Action that was sent: index or delete.")] = "index",
    json: Json = False,
) -> None:
    """Say how a reply of Elasticsearch is classified, by which rule, and what happens to the event.

    Takes a whole bulk reply, one item of it, an error object, or the body of a refused request.

    Examples:
      outbox explain-error --id 0190f5a2-7c1e-7d3b-9a54-3f6f0c1d2e3f
      outbox explain-error --status 429 '{"type": "circuit_breaking_exception", "reason": "too large"}'
      curl -s localhost:9200/_bulk ... | outbox explain-error
    """
    from outbox.ops import explain  # noqa: PLC0415  (orjson and the rules, only here)

    if id is not None:
        with session.desk() as desk:
            detail = desk.browse.show(event_id(id))
        event = detail.event
        verdicts = [explain.explain_stored(event, detail.error_detail)]
    else:
        verdicts = explain.explain_reply(_read(reply), status, op)
    if json:
        output.as_json([asdict(verdict) for verdict in verdicts])
        return
    for verdict in verdicts:
        output.table(("", ""), [(name, value) for name, value in asdict(verdict).items() if value])


def _read(reply: str | None) -> str:
    if reply not in (None, "-"):
        return str(reply)
    if sys.stdin.isatty():
        raise UsageError("give the reply as an argument or on stdin, or an event with --id")
    return sys.stdin.read()
