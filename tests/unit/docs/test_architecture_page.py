"""ARCHITECTURE.md names rooms, modules and paths of files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "outbox"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/.]+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its first two lines."""
    part = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")][2:]


def exists(place: Path) -> bool:
    return place.exists() or place.with_suffix(".py").is_file()


def test_every_room_and_every_module_of_a_room_exists() -> None:
    named = [
        (room, name) for room, owns, *_ in rows("The rooms") for name in (*NAMED.findall(room), *NAMED.findall(owns))
    ]
    assert len(named) > 40
    missing = [
        (room, name)
        for room, name in named
        if not any(exists(place / name) for place in (ROOT, *(ROOT / one for one in NAMED.findall(room))))
    ]
    assert missing == []


def test_every_file_of_the_four_paths_exists() -> None:
    named = [name for _, files in rows("Four paths through the files") for name in NAMED.findall(files)]
    assert len(named) > 30
    assert [name for name in named if not exists(PACKAGE / name)] == []


def test_every_file_that_a_diagram_or_a_sentence_names_exists() -> None:
    named = re.findall(r"(?<![\w/])((?:\w+/)+\w+\.(?:py|sql|html))", PAGE)
    assert len(named) > 10
    places = (ROOT, PACKAGE, PACKAGE / "store")
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []
