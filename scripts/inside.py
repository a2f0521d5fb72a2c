"""Owns the way of the guide's scripts into the checkout's .venv; `environment.sh` makes it.

A script that another Python started goes on in it. Where there is none, one line says what makes it.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("outbox", "labs")


def start(module, *words):
    """Run the `main` of a module of ours, `words` before the arguments. A system's Python 3.6 must get this far."""
    given = list(sys.argv)
    sys.path.insert(0, str(ROOT))
    if sys.version_info < (3, 11):  # noqa: UP036
        go_on_inside(given, "Python 3.11")
    try:
        main = import_module(module).main
        sys.argv[1:1] = words
        sys.exit(main())
    except ModuleNotFoundError as missing:
        package = (missing.name or "").split(".")[0]
        if not package or package in OURS:
            raise
    go_on_inside(given, "the package " + package)


def go_on_inside(given, absent):
    """Replaces this process; ends it where there is no .venv, or where .venv lacks the same."""
    python = ROOT / ".venv" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parents[1].resolve():
        os.execv(str(python), [str(python), *given])  # noqa: S606
    name = Path(given[0]).name
    sys.exit(f"{name}: {absent} is missing here; scripts/devtest_db_5435_start.sh makes .venv, which has it")
