"""The commands `webhook test|verify`: is the receiver there, is a message ours. They change nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from outbox import cli
from outbox.cli import Json, option
from outbox.errors import ConfigProblem, ConfigurationError, DependencyDown, OutboxError, UsageError

commands = typer.Typer()
webhook = typer.Typer(no_args_is_help=True, help="Send a test webhook, or check a signature.")
commands.add_typer(webhook, name="webhook", rich_help_panel="Install")


class NotOurs(OutboxError):
    """The signature does not match: the message is not ours, or not fresh. Do not act on it."""


class ReceiverAway(DependencyDown):
    """The receiver did not accept the message. Correct OUTBOX_WEBHOOK_URL, or read the receiver's log."""


@webhook.command(name="test")
def try_(json: Json = False) -> None:
    """Send one message of type `webhook.test` to OUTBOX_WEBHOOK_URL, now. Exit 75 when it is not taken.

    Examples:
      outbox webhook test
    """
    with cli.open_operations(cli.settings()) as desk:
        tried = desk.webhooks.test()
    if json:
        cli.as_json(tried)
    elif tried.ok:
        cli.line(f"ok: {tried.to} answered {tried.status} after {tried.duration_seconds * 1000:.0f} ms")
    if not tried.ok:
        raise ReceiverAway(f"{tried.to}: {tried.error}")


@webhook.command()
def verify(
    body: Annotated[Path, typer.Argument(help="File with the raw body; `-` is stdin.", metavar="BODY")],
    id: Annotated[str, option("--id", "Header webhook-id.")],
    timestamp: Annotated[str, option("--timestamp", "Header webhook-timestamp.")],
    signature: Annotated[str, option("--signature", "Header webhook-signature.")],
    json: Json = False,
) -> None:
    """Check that a message was signed with OUTBOX_WEBHOOK_SECRET and is fresh. Exit 1 if not.

    Examples:
      outbox webhook verify body.json --id msg_2b1 --timestamp 1770112800 --signature 'v1,K5oZ...'
    """
    from outbox.policy import webhook as policy  # noqa: PLC0415

    secret = cli.settings(require_database=False).webhook.secret
    if secret is None:
        remedy = "Give the secret that the messages are signed with (or OUTBOX_WEBHOOK_SECRET_FILE)."
        raise ConfigurationError([ConfigProblem("OUTBOX_WEBHOOK_SECRET", "is not set", remedy)])
    try:
        raw = typer.get_binary_stream("stdin").read() if str(body) == "-" else body.read_bytes()
    except OSError as wrong:
        raise UsageError(f"{body} cannot be read: {wrong.strerror}") from wrong
    given = {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature}
    wrong_with_it = policy.verify(secret.get_secret_value(), given, raw, time.time())
    if json:
        cli.as_json({"ok": wrong_with_it is None, "why": wrong_with_it})
    elif wrong_with_it is None:
        cli.line("ok: the message is ours and fresh")
    if wrong_with_it is not None:
        raise NotOurs(wrong_with_it)
