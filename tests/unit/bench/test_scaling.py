"""The simulation behind docs/scaling.md: its table is on the page, and every constant names its source."""

import tomllib

import pytest

from bench import scaling_parts
from bench.scaling import FIGURES, PAGE, Setup, figures, simulate, table, written

KNOWN = figures()


def test_the_table_of_the_page_is_what_the_simulation_prints() -> None:
    page = PAGE.read_text()
    assert written(page, table()) == page, "run python -m bench.scaling --write"


@pytest.mark.parametrize("name", KNOWN)
def test_every_constant_says_its_unit_and_where_it_comes_from(name: str) -> None:
    told = tomllib.loads(FIGURES.read_text())[name]
    assert told["unit"]
    assert told["source"]


def test_on_shared_cores_the_rate_stays_below_what_the_cpu_allows() -> None:
    most = 2e6 / (KNOWN["es_us"] + KNOWN["pg_us"] + KNOWN["python_us"])
    found = simulate(Setup("two cores", 1, lanes=8, shared_cores=2), KNOWN)
    assert 0.9 * most <= found.rate <= most
    assert found.limit == "the machine's cores"


# A billion documents in parts


def test_the_table_of_parts_on_the_page_is_what_the_simulation_prints() -> None:
    page = PAGE.read_text()
    assert written(page, scaling_parts.table(), scaling_parts.BEGIN, scaling_parts.END) == page, (
        "run python -m bench.scaling_parts --write"
    )


def test_a_copy_on_shared_cores_stays_below_what_the_cpu_allows() -> None:
    most = 2e6 / (KNOWN["copy_es_us"] + KNOWN["copy_pg_us"] + KNOWN["copy_python_us"])
    found = scaling_parts.simulate(scaling_parts.CopySetup("", 4, shared_cores=2), KNOWN)
    assert 0.9 * most <= found.rate <= most
    assert found.limit == "the machine's cores"
