"""docs/security.md and docs/kafka.md name the tests that show their claims: each is there, and so is each place that
the first links to."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KAFKA = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "least"), [(PAGE, 50), (KAFKA, 20)], ids=["security", "kafka"])
def test_every_test_that_the_page_names_is_there(page: str, least: int) -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    there = set(re.findall(r"^def (test_\w+)\(", text, re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > least
    assert named <= there, named - there
