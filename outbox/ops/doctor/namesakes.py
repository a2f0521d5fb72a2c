"""What `outbox doctor` says about other modules of our name: a package of that name is on PyPI, and projects have apps
called so. Which one `import outbox` finds depends on the order of the paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from outbox.ports import Finding, Level

NAME: Final = "names"
OURS: Final = Path(__file__).parents[2]
REMEDY: Final = (
    "Install outbox-projector into an environment of its own, or rename that module: a program that imports both finds"
    " one (docs/python.md)."
)


def namesakes(places: Iterable[str]) -> Iterator[Finding]:
    """`places`: where Python searches, and where people start it; some of them may be closed to us, or gone."""
    folders: dict[Path, None] = {}
    for place in places:
        with suppress(OSError):
            folders[Path(place or ".").resolve()] = None
    for other in [folder / name for folder in folders for name in ("outbox/__init__.py", "outbox.py")]:
        if _is_another(other):
            yield Finding(NAME, Level.WARN, f"another module is called outbox: {other}", REMEDY)


def _is_another(module: Path) -> bool:
    try:
        return module.is_file() and module.parent.resolve() != OURS
    except OSError:
        return False
