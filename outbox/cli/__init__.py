"""The door for people at a shell: `main` runs a command and turns what went wrong into words and an exit code."""

import sys
import traceback
from collections.abc import Callable

from outbox.errors import OutboxError

EXIT_BUG = 1


def main() -> None:
    """`outbox`, and `python -m outbox`."""
    from outbox.cli.menu import app  # noqa: PLC0415  (what it costs to import is spent inside `guarded`)

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
    from outbox.policy.safe_text import redact_dsn  # noqa: PLC0415  (0.2 s, only when needed)

    frames = "".join(traceback.format_tb(bug.__traceback__))
    told = redact_dsn(f"{type(bug).__name__}: {bug}")[:1000]
    return f"{frames}outbox: this is a bug of ours, please report it with the lines above. {told}"


def _say(text: str) -> None:
    """An error may quote what it was given: nothing of that may steer the terminal."""
    from outbox.cli.output import note  # noqa: PLC0415  (late, like all that a command needs)

    note(text)
