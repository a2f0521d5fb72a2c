"""The simulation behind docs/scaling.md: its table is on the page, and every constant names its source."""

import tomllib

import pytest

from bench import scaling_parts
from bench.scaling import FIGURES, PAGE, figures, table, written

KNOWN = figures()


def test_the_table_of_the_page_is_what_the_simulation_prints() -> None:
    page = PAGE.read_text()
    assert written(page, table()) == page, "run python -m bench.scaling --write"


@pytest.mark.parametrize("name", KNOWN)
def test_every_constant_says_its_unit_and_where_it_comes_from(name: str) -> None:
    told = tomllib.loads(FIGURES.read_text())[name]
    assert told["unit"]
    assert told["source"]


def test_the_table_of_parts_on_the_page_is_what_the_simulation_prints() -> None:
    page = PAGE.read_text()
    assert written(page, scaling_parts.table(), scaling_parts.BEGIN, scaling_parts.END) == page, (
        "run python -m bench.scaling_parts --write"
    )
