"""Runs the guide's scripts in the checkout's .venv, which `environment.sh` makes.

A script that another Python started continues in it. If there is none, one line says how to make it.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("outbox", "labs")


def start(module: str, *before: str) -> None:
    """Run the `main` of a module of ours, with `before` added to the arguments. Must work with Python 3.6."""
    given = list(sys.argv)
    sys.path.insert(0, str(ROOT))
    if sys.version_info < (3, 11):  # noqa: UP036
        continue_inside(given, "Python 3.11")
    try:
        main = import_module(module).main
        sys.argv[1:1] = before
        sys.exit(main())
    except ModuleNotFoundError as missing:
        package = (missing.name or "").split(".")[0]
        if not package or package in OURS:
            raise
    continue_inside(given, "the package " + package)


def continue_inside(given: "list[str]", absent: str) -> None:
    """Replaces this process. Exits if there is no .venv, or if .venv lacks the same."""
    python = ROOT / ".venv" / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != python.parents[1].resolve():
        os.execv(str(python), [str(python), *given])  # noqa: S606
    name = Path(given[0]).name
    sys.exit(f"{name}: {absent} is missing; run scripts/devtest_db_5435_start.sh, which makes a .venv that has it")
