"""The checksums of a run's files, written last and checked by `labs verify`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

NAME = "MANIFEST.sha256"


def files(folder: Path) -> Iterator[Path]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    return iter(sorted(found))


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(folder: Path) -> None:
    lines = [f"{checksum(path)}  {path.relative_to(folder)}\n" for path in files(folder)]
    (folder / NAME).write_text("".join(lines), encoding="utf-8")


def problems(folder: Path) -> list[str]:
    """Files that were changed, removed or added since the run ended."""
    if not (folder / NAME).exists():
        return [f"{NAME} is missing"]
    lines = [line.split("  ", 1) for line in (folder / NAME).read_text(encoding="utf-8").splitlines()]
    known = {name: digest for digest, name in lines}
    there = {str(path.relative_to(folder)): path for path in files(folder)}
    changed = [f"{name} was changed" for name in known if name in there and checksum(there[name]) != known[name]]
    removed = [f"{name} was removed" for name in known if name not in there]
    return changed + removed + [f"{name} was added" for name in there if name not in known]
