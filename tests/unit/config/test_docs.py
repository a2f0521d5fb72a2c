"""docs/configuration.md matches the settings."""

from __future__ import annotations

from pathlib import Path

from outbox.config.reference import render_reference

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == render_reference(), "run scripts/docs"
