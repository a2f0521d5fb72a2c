"""The documentation has one order, start, use, operate, understand: in docs/README.md and in the nav of the site."""

import posixpath
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.fixtures.deployment import ROOT

NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
SECTIONS = {title: part for each in NAV for title, part in each.items() if isinstance(part, list)}
PAGE = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
ORDER = ["Start", "Use", "Operate", "Understand"]


def pages(part: Any) -> Iterator[str]:
    """The files of a part of the nav, as paths of the repository. One page per alert is the runbooks' own."""
    if isinstance(part, str):
        outside = (ROOT / part).exists() and not (ROOT / "docs" / part).exists()
        if not part.startswith("runbooks/Outbox"):
            yield "README.md" if part == "about.md" else part if outside else f"docs/{part}"
        return
    for each in part:
        yield from pages(each if isinstance(each, str) else next(iter(each.values())))


def linked(title: str) -> list[str]:
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0].partition("\n\nTo work on it")[0]
    return [posixpath.normpath(f"docs/{m[1]}") for m in re.finditer(r"\]\(([^)#]+\.md)\)", section)]


def test_the_sections_stand_in_this_order() -> None:
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == ORDER
    assert [title for title in SECTIONS if title in ORDER] == ORDER


@pytest.mark.parametrize("title", ORDER)
def test_the_first_page_and_the_site_have_the_same_pages_in_the_same_order(title: str) -> None:
    assert linked(title) == list(pages(SECTIONS[title]))
