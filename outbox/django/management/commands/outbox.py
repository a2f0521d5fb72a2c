"""`manage.py outbox COMMAND ...`: the command `outbox`, with its settings from Django's."""

import os
import sys
from argparse import REMAINDER
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

from django.core.management.base import BaseCommand, CommandError, CommandParser

from outbox.cli import guarded
from outbox.django.conf import environment


class ManageOutbox(BaseCommand):
    help = "Runs a command of the outbox with Django's settings, such as `manage.py outbox status`."
    requires_system_checks = ()  # `manage.py check` runs ours; `outbox migrate` must work before they pass

    def run_from_argv(self, argv: list[str]) -> None:
        """Every argument is the command's own, --help and --version included, and so is the exit code."""
        os.environ.update(environment())
        _run(argv[2:])

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *_: Any, arguments: list[str], stdout: Any = None, stderr: Any = None, **__: Any) -> None:
        """For `call_command("outbox", "status")`, which returns if the command did what it should."""
        given = patch.dict(os.environ, environment())  # the program has an environment of its own
        with given, redirect_stdout(stdout or sys.stdout), redirect_stderr(stderr or sys.stderr):
            try:
                _run(arguments)
            except SystemExit as left:
                if left.code:
                    what = f"`outbox {' '.join(arguments)}` failed with the exit code {left.code}"
                    raise CommandError(what, returncode=int(left.code)) from left


def _run(arguments: list[str]) -> None:
    from outbox.cli.menu import app  # noqa: PLC0415

    guarded(lambda: app(args=arguments, prog_name="manage.py outbox"))


Command = ManageOutbox  # the name that Django imports
