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


def test_more_lanes_help_until_elasticsearch_is_full() -> None:
    rates = [simulate(Setup("", 1, lanes=n, es_cores=2, shards=2), KNOWN).rate for n in (1, 2, 4, 8)]
    assert rates == sorted(rates)
    assert rates[3] <= 2e6 / KNOWN["es_us"]
    assert simulate(Setup("", 1, lanes=8, es_cores=2, shards=2), KNOWN).limit == "Elasticsearch's CPU"


def test_one_process_cannot_use_more_than_one_core() -> None:
    quick = {**KNOWN, "es_us": 0.1, "pg_us": 0.1, "wal_bytes": 1.0}
    found = simulate(Setup("", 1, lanes=32), quick)
    assert found.rate <= 1e6 / KNOWN["python_us"]
    assert found.limit == "a daemon's core"


def test_a_second_database_doubles_what_one_can_hand_out() -> None:
    rich = {"es_nodes": 20, "shards": 20, "lanes": 8}
    one = simulate(Setup("", 8, **rich), KNOWN).rate
    two = simulate(Setup("", 16, databases=2, **rich), KNOWN).rate
    assert two == pytest.approx(2 * one, rel=0.05)


# A billion documents in parts


def test_the_table_of_parts_on_the_page_is_what_the_simulation_prints() -> None:
    page = PAGE.read_text()
    assert scaling_parts.written(page, scaling_parts.table()) == page, "run python -m bench.scaling_parts --write"


def test_a_copy_on_shared_cores_stays_below_what_the_cpu_allows() -> None:
    most = 2e6 / (KNOWN["copy_es_us"] + KNOWN["copy_pg_us"] + KNOWN["copy_python_us"])
    found = scaling_parts.simulate(scaling_parts.CopySetup("", 4, shared_cores=2), KNOWN)
    assert 0.9 * most <= found.rate <= most
    assert found.limit == "the machine's cores"


def test_more_processes_help_a_copy_until_a_server_is_full() -> None:
    rates = [scaling_parts.simulate(scaling_parts.CopySetup("", n, shards=8), KNOWN).rate for n in (1, 2, 4, 64)]
    assert rates == sorted(rates)
    assert rates[-1] <= 8e6 / KNOWN["copy_es_us"]
    assert scaling_parts.simulate(scaling_parts.CopySetup("", 64, shards=8), KNOWN).limit == "Elasticsearch's CPU"


def test_a_copy_by_one_process_is_limited_by_its_own_core_where_servers_are_quick() -> None:
    quick = {**KNOWN, "copy_es_us": 0.1, "copy_pg_us": 0.1, "request_ms": 0.0, "round_trip_ms": 0.0}
    found = scaling_parts.simulate(scaling_parts.CopySetup("", 1), quick)
    assert found.limit == "a process's core"
    assert found.hours == pytest.approx(1e9 * KNOWN["copy_python_us"] / 1e6 / 3600, rel=0.1)
