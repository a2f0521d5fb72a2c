"""`manage.py outbox COMMAND ...`: the command `outbox`, with its settings from Django's."""

from __future__ import annotations

import os
from argparse import REMAINDER
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from outbox.cli import guarded
from outbox.django.conf import environment


class ManageOutbox(BaseCommand):
    help = "Runs a command of the outbox with Django's settings, such as `manage.py outbox status`."
    requires_system_checks = ()  # `manage.py check` runs ours; `outbox migrate` must work before they pass

    def run_from_argv(self, argv: list[str]) -> None:
        """Every argument is the command's own, --help and --version included."""
        _run(argv[2:])

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *_: Any, arguments: list[str], **__: Any) -> None:
        """For `call_command("outbox", "status")`."""
        _run(arguments)


def _run(arguments: list[str]) -> None:
    from outbox.cli.menu import app  # noqa: PLC0415

    os.environ.update(environment())
    guarded(lambda: app(args=arguments, prog_name="manage.py outbox"))


Command = ManageOutbox  # the name that Django imports
