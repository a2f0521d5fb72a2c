"""scripts/compat --record: new results replace their rows in the docs, all other rows stay."""

import json
from pathlib import Path

from tests.compat.outcome import BEGIN, END, PAGE, record

VERSIONS = {"postgresql": "18.4", "elasticsearch": "9.4.3", "python": "3.11.7", "pooler": "none"}


def rows(text: str) -> list[str]:
    return [line for line in text[text.index(BEGIN) : text.index(END)].splitlines() if line.startswith("| `")]


def test_a_result_replaces_its_row_and_no_other(tmp_path: Path) -> None:
    before = PAGE.read_text()
    page = tmp_path / "page.md"
    page.write_text(before)
    figures = {"passed": 1234, "seconds": 5, "versions": VERSIONS, "commit": "abc1234", "at": "2026-11-18 07:00"}
    for name in ("elasticsearch-9", "newest"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "word": "passed", **figures}))
    record(page, tmp_path)
    after = page.read_text()
    rest = "| 18.4 | 9.4.3 | 3.11.7 | none | 1,234 passed in 5 s | 2026-11-18 07:00, `abc1234` |"
    assert {row for row in rows(after) if "abc1234" in row} == {f"| `elasticsearch-9` {rest}", f"| `newest` {rest}"}
    kept = [row for row in rows(before) if not row.startswith(("| `elasticsearch-9`", "| `newest`"))]
    assert [row for row in rows(after) if "abc1234" not in row] == kept
    assert after.split(BEGIN)[0] == before.split(BEGIN)[0]
    assert after.split(END)[1] == before.split(END)[1]


def test_without_a_result_the_page_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    record(page, tmp_path)
    assert page.read_text() == PAGE.read_text()
