"""How a command begins and ends: `main` turns errors into an exit code; settings and services are opened here."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING

from outbox.errors import OutboxError, UsageError

# Late imports, all of them here: psycopg and elasticsearch take 0.6 s together, and `outbox --help` needs neither.
# ruff: noqa: PLC0415
if TYPE_CHECKING:
    from outbox.app.desk import QueueDesk
    from outbox.app.operations import Operations
    from outbox.app.reindex import Reindexing
    from outbox.app.up import Up
    from outbox.config import Settings
    from outbox.ops.doctor.doctor import Doctor, IndexDesk
    from outbox.policy.audit import Actor

EXIT_BUG = 1


def main() -> None:
    """`outbox`, and `python -m outbox`."""
    from outbox.cli.menu import app

    guarded(lambda: app(prog_name="outbox"))


def guarded(command: Callable[[], object]) -> None:
    """Run a command and leave with its code: the one place where an error becomes an exit code."""
    try:
        command()
    except OutboxError as error:
        _say(f"outbox: {error.message}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as bug:
        _say(_confession(bug))
        sys.exit(EXIT_BUG)


def _confession(bug: Exception) -> str:
    """Where it happened, without the values: a traceback with locals would show secrets."""
    from outbox.policy.redact import redact_dsn

    frames = "".join(traceback.format_tb(bug.__traceback__))
    message = redact_dsn(f"{type(bug).__name__}: {bug}")[:1000]
    return f"{frames}outbox: this is a bug of ours, please report it with the lines above. {message}"


def _say(text: str) -> None:
    """An error may quote what it was given: nothing of that may steer the terminal."""
    from outbox.cli.output import note

    note(text)


class ExtraMissing(OutboxError):
    """A part of this program is not installed. Run `pip install 'outbox-projector[embedded]'` for `outbox up`; or
    give DATABASE_URL and ELASTIC_URL and use `outbox migrate`, `outbox index create` and `outbox run`."""

    exit_code = 78


class ConsoleMissing(OutboxError):
    """The console is not installed. Run `pip install 'outbox-projector[console]'`."""

    exit_code = 78


def settings(*, require_database: bool = True, **flags: object) -> Settings:
    """The settings, flags first (named by their variable); all problems at once."""
    from outbox.config import load_settings

    return load_settings(flags=flags, require_database=require_database)


def open_desk(chosen: Settings | None = None) -> AbstractContextManager[QueueDesk]:
    """Everything that people do with a running installation, over a small pool that is closed at the end."""
    from outbox.app.desk import open_desk as opened

    return opened(chosen or settings())


def open_operations(chosen: Settings | None = None) -> AbstractContextManager[Operations]:
    """What people do with failures: replays, discards, the audit, statistics, pruning, webhooks."""
    from outbox.app.operations import open_operations as opened

    return opened(chosen or settings())


def open_index_desk(chosen: Settings) -> AbstractContextManager[IndexDesk]:
    from outbox.app.doctor import open_index_desk as opened

    return opened(chosen)


def open_doctor(chosen: Settings) -> AbstractContextManager[Doctor]:
    from outbox.app.doctor import open_doctor as opened

    return opened(chosen)


def run_daemon(chosen: Settings, *, once: bool, patient: bool) -> bool:
    from outbox.app.launch import run_daemon

    return run_daemon(chosen, once=once, patient=patient)


def open_up(rate: float, product: str, say: Callable[[str], None]) -> Up:
    """Not started yet; servers, projector and sample end when it is left."""
    chosen = settings(require_database=False)
    try:
        from outbox.app.up import Up
    except ModuleNotFoundError as missing:
        raise ExtraMissing(f"the module {missing.name}") from missing
    return Up(chosen, rate, product, say)


def run_console(chosen: Settings, tell: Callable[[str], None]) -> None:
    try:
        from outbox.app.console import run_console
    except ModuleNotFoundError as missing:
        raise ConsoleMissing(f"the module {missing.name}") from missing
    run_console(chosen, tell)


def console_token(name: str, role: str) -> tuple[str, str]:
    """A new token, and its line for the file."""
    from outbox.web.auth.accounts import Role, line_for, new_token

    token = new_token()
    try:
        return token, line_for(name, Role(role), token)
    except ValueError as wrong:
        raise UsageError(str(wrong)) from wrong


def migrations() -> ModuleType:
    from outbox.store.schema import migrate

    return migrate


def open_reindex(chosen: Settings | None = None) -> AbstractContextManager[Reindexing]:
    """What compares, repairs and rebuilds the index."""
    from outbox.app.reindex import open_reindexing

    return open_reindexing(chosen or settings())


def person() -> str:
    """Who sits at the shell, where nobody said --by."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "cli"


def actor(by: str) -> Actor:
    """Who acts, by this command."""
    from outbox.ops.inputs import actor
    from outbox.policy.audit import Source

    return actor(by, Source.CLI)
