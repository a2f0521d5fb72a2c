"""docs/configuration.md matches the settings."""

from __future__ import annotations

from pathlib import Path

from outbox.config import VARIABLES
from outbox.config.reference import render_reference

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render_reference(), "run scripts/docs"


def test_every_row_of_a_table_has_four_cells() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("| `")]
    assert len(rows) == len(VARIABLES)
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}
