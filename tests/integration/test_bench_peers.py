"""What `peers` measures by, and its documents of two tables: our own side, on the servers of the tests."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from elasticsearch import Elasticsearch, helpers

from bench import peers_joined
from bench.arrivals import ArrivalRate, Arrivals
from bench.peers_joined import CHANGED, OURS, UNITS, ChangedArticles, Joined
from bench.result import BenchmarkResult
from bench.stack import BenchmarkServers
from bench.worker import daemons

ROOT = Path(__file__).parents[2]
DOCUMENTS, LIMIT_SECONDS = 20, 2.0
pytestmark = pytest.mark.release("judges a benchmark and not the program")


@pytest.fixture
def servers(postgres_url: str, elastic_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BenchmarkServers:
    monkeypatch.chdir(tmp_path)  # daemons log below it
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return BenchmarkServers(postgres_url, elastic_url)


@pytest.fixture
def index(servers: BenchmarkServers) -> Iterator[str]:
    with servers.index() as name:
        servers.fresh_index(name)
        yield name


def article(number: int, *comments: int) -> dict[str, object]:
    return {"_id": str(number), "n": number, "comments": [{"n": n} for n in comments]}


def watched(arrivals: Arrivals, begin: Callable[[], object]) -> ArrivalRate:
    return arrivals.watch(DOCUMENTS, lambda: 0.0, begin, LIMIT_SECONDS)


def test_a_change_counts_when_its_comment_is_there(servers: BenchmarkServers, index: str, es: Elasticsearch) -> None:
    """Other writes of the same documents do not, nor changes of those that are not asked about."""
    helpers.bulk(es, [article(number, 1, 2) for number in range(1, DOCUMENTS + 3)], index=index)
    changed = ChangedArticles(servers, index, DOCUMENTS)
    again = [article(number, 1, CHANGED if number > 1 else 2) for number in range(1, DOCUMENTS + 3)]
    assert watched(changed, lambda: helpers.bulk(es, again, index=index)).missing == 1
    assert changed.among(["1", "2", "no such"]) == ["2"]


def test_our_side_follows_the_comments(servers: BenchmarkServers) -> None:
    result = BenchmarkResult("peers", smoke=True)
    Joined(servers, servers, result, DOCUMENTS, 3, lambda: None).side(OURS)
    assert result.notes == []
    assert all(result.median(f"{OURS}: {label}") > 0 for label in UNITS if label != "CPU")


def test_a_side_that_does_not_follow_is_named_and_ends_no_run(
    servers: BenchmarkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_joined, "START_SECONDS", 2)
    monkeypatch.setattr(peers_joined, "daemons", partial(daemons, count=0))
    result = BenchmarkResult("peers", smoke=False)
    Joined(servers, servers, result, DOCUMENTS, 3, lambda: None).side(OURS)
    assert result.notes == [f"{OURS}: did not follow within 2 s"]
    assert result.median(f"{OURS}: rate") == 1 / peers_joined.LIMIT_SECONDS
    assert result.median(f"{OURS}: p50") == peers_joined.LIMIT_SECONDS * 1000
