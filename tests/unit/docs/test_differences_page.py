"""docs/differences.md: the defaults that it gives as ours are ours, and its failure types are those that there are."""

import re
from pathlib import Path

import pytest

from outbox.config import VARIABLES
from outbox.policy.outcome import FAILURE_TYPE_OF

PAGE = (Path(__file__).parents[3] / "docs" / "differences.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
DEFAULTS = {row[0].strip("`"): row[2] for row in ROWS if row[0].startswith("`OUTBOX_")}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_of_the_page_is_the_programs(name: str) -> None:
    said = DEFAULTS[name]
    default = VARIABLES[name].default
    if re.fullmatch(r"[\d.]+", said):
        assert float(said) == float(default)
    else:
        assert default.strip("`") in ("none", "{}")


def test_the_changed_defaults_are_all_there() -> None:
    """Those that the earlier systems have otherwise: each needs its reason."""
    assert {"OUTBOX_RECLAIM_BATCH_SIZE", "OUTBOX_RECLAIM_INTERVAL_SECONDS", "OUTBOX_KIND_CONCURRENCY_DEFAULT"} <= set(
        DEFAULTS
    )
    assert all(row[3] for row in ROWS if row[0].strip("`") in DEFAULTS)


def test_the_failure_types_of_the_page_are_those_that_there_are() -> None:
    [row] = [row for row in ROWS if row[0].startswith("failure types")]
    assert set(re.findall(r"`(\w+)`", row[1])) == set(FAILURE_TYPE_OF.values())
