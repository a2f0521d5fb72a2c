"""Several addresses of one search server, each through a proxy of its own: one that is cut, hangs or refuses costs no
event an attempt, and is used again when it is back."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from elasticsearch import Elasticsearch

from labs.proxy import Proxy
from outbox.config import ElasticSettings
from outbox.facts import Fact, NodeBack, NodeLeftOut
from outbox.policy.outcome import WRITTEN, Failure, Reason
from outbox.ports import BulkAction, Level, WriteReport
from outbox.sink.client import Elastic, NoReply, Reply, connect
from outbox.sink.elastic import MOST_EXCUSED, ElasticSink
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.proxy import proxy_to
from tests.fixtures.queue import EventTable
from tests.fixtures.scripted import Request, Script, ScriptedServer, answer, scripted
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually

DEADLINE_SECONDS = 1.0
NOBODY = "http://127.0.0.1:9"


@dataclass
class Cluster:
    """One real server behind three addresses."""

    proxies: list[Proxy]
    urls: list[str]
    facts: list[Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.elastic = connect(ElasticSettings(url=",".join(self.urls)), announce=self.facts.append)
        self.sink = ElasticSink(self.elastic, announce=self.facts.append)

    def write(self, index: str, *names: str, version: int = 1) -> WriteReport:
        actions = [BulkAction(index, name, version, None, b'{"n": 1}') for name in names]
        return self.sink.write(actions, DEADLINE_SECONDS)

    def warm(self, index: str) -> None:
        """Each node has a connection and has served."""
        for turn in range(2 * len(self.urls)):
            assert self.write(index, f"warm-{turn}").outcomes == [WRITTEN]
        assert all(proxy.counts["requests"] for proxy in self.proxies)

    def left_out(self) -> list[str]:
        """Those that are left out now, by what was announced."""
        out: list[str] = []
        for fact in list(self.facts):
            if isinstance(fact, NodeLeftOut):
                out.append(fact.node)
            elif isinstance(fact, NodeBack):
                out.remove(fact.node)
        return out

    def is_used(self, place: int, index: str) -> bool:
        before = self.proxies[place].counts["requests"]
        for turn in range(len(self.urls)):
            assert self.write(index, f"used-{turn}", version=2).outcomes == [WRITTEN]
        return self.proxies[place].counts["requests"] > before


@pytest.fixture
def cluster(elastic_url: str, es: Elasticsearch, index: str) -> Iterator[Cluster]:
    # A busy master takes longer for a new field than a write has here.
    es.indices.put_mapping(index=index, properties={"n": {"type": "long"}})
    with ExitStack() as stack:
        pairs = [stack.enter_context(proxy_to(elastic_url)) for _ in range(3)]
        made = Cluster([proxy for proxy, _ in pairs], [url for _, url in pairs])
        stack.callback(made.elastic.close)
        yield made


def cut_under_way(proxy: Proxy) -> None:
    """The next bulk is applied, its reply is lost, and then nobody listens: as a node that is killed."""
    proxy.lose_replies(b"_bulk", most=1)


FAULTS: dict[str, Callable[[Proxy], None]] = {
    "refuses connections": Proxy.cut,
    "hangs": Proxy.stall,
    "loses a reply": cut_under_way,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_with_a_fault_costs_no_document_and_is_used_again(
    cluster: Cluster, index: str, es: Elasticsearch, fault: str
) -> None:
    cluster.warm(index)
    FAULTS[fault](cluster.proxies[1])
    reports = [cluster.write(index, f"d{turn}") for turn in range(4)]
    assert [report.outcomes for report in reports] == [[WRITTEN]] * 4
    assert not any(report.unreachable or report.pressure for report in reports)
    assert cluster.left_out() == ([] if fault == "loses a reply" else [cluster.urls[1]])
    shown = [f"{url} {'left out' if url in cluster.left_out() else 'in use'}" for url in cluster.urls]
    assert f"({', '.join(shown)})" in (cluster.elastic.shown or "")
    cluster.proxies[1].heal()
    eventually(lambda: not cluster.left_out())
    assert cluster.is_used(1, index)
    es.indices.refresh(index=index)
    assert es.count(index=index, q="n:1")["count"] == 4 + 6 + 3


def test_all_dead_is_an_outage_as_with_one_address_and_each_is_tried_again(cluster: Cluster, index: str) -> None:
    cluster.warm(index)
    for proxy in cluster.proxies:
        proxy.cut()
    report = cluster.write(index, "a", "b")
    assert report.unreachable is not None
    assert report.unreachable.reason is Reason.CONNECT
    assert [o.reason for o in report.outcomes if isinstance(o, Failure)] == [Reason.CONNECT] * 2
    assert sorted(cluster.left_out()) == sorted(cluster.urls)
    cluster.proxies[2].heal()
    assert cluster.write(index, "a", "b").outcomes == [WRITTEN] * 2  # without waiting for its pause
    assert cluster.urls[2] not in cluster.left_out()


def test_events_keep_their_attempts_while_one_node_after_the_other_goes(
    cluster: Cluster, index: str, queue: EventTable
) -> None:
    worker = InProcess(Parts(queue.store(), cluster.sink, index_of=lambda _: index, lease_seconds=2.0))
    for place, fault in enumerate(FAULTS.values()):
        queue.produce_many(20)
        fault(cluster.proxies[place])
        for _ in range(4):
            worker.run(5)
        cluster.proxies[place].heal()
        eventually(lambda: not cluster.left_out())
    rows = queue.connection.execute("select status, attempts, count(*) from search_outbox_events group by 1, 2")
    assert rows.fetchall() == [("done", 1, 60)]


# What a real server cannot show: replies of proxies, other clusters, documents that break connections


def about(cluster: str) -> bytes:
    return json.dumps({"cluster_uuid": cluster, "version": {"number": "8.14.1"}}).encode()


def node(cluster: str = "one") -> Callable[[Request], bytes]:
    def reply(request: Request) -> bytes:
        if request.path == "/":
            return answer(200, b"" if request.method == "HEAD" else about(cluster))
        return answer(200, b'{"things":{"aliases":{},"settings":{}}}')

    return reply


def taken(_: Request) -> bytes:
    return answer(200, b'{"errors":false,"items":[{"index":{"status":201}}]}')


def away(_: Request) -> bytes:
    return answer(503, b"no upstream", headers="", kind="text/plain")


def slow(released: threading.Event) -> Callable[[Request], bytes]:
    """Up, and answering nothing else before it is released."""

    def reply(request: Request) -> bytes:
        if request.path != "/":
            released.wait(PATIENCE_SECONDS)
        return node()(request)

    return reply


def break_off(request: Request) -> bytes:
    return node()(request) if request.path == "/" else b""


def refusing(status: int, _: Request) -> bytes:
    return answer(status, b"{}", headers="")


def leaving(kind: str) -> bytes:
    """What Elasticsearch 8.14 replied for a document whose primary shard was on a node that was being stopped."""
    error = {"type": kind, "reason": "[embedded-c1c4b9c4][127.0.0.1:31899] Node not connected"}
    return answer(200, json.dumps({"errors": True, "items": [{"index": {"status": 500, "error": error}}]}).encode())


@contextmanager
def elastic_at(*urls: str, **settings: Any) -> Iterator[tuple[Elastic, list[Fact]]]:
    facts: list[Fact] = []
    elastic = connect(ElasticSettings(url=",".join(urls), **settings), announce=facts.append)
    try:
        yield elastic, facts
    finally:
        elastic.close()


@contextmanager
def two_nodes(
    one: Script, two: Script, bulk: Script = taken, **settings: Any
) -> Iterator[tuple[ScriptedServer, ScriptedServer, Elastic, list[Fact]]]:
    """All that they reply but to a bulk is `one` and `two`."""
    with (
        scripted(bulk, one) as first,
        scripted(bulk, two) as second,
        elastic_at(first.url, second.url, **settings) as (elastic, facts),
    ):
        yield first, second, elastic, facts


def write_one(elastic: Elastic, times: int = 1, within: float = DEADLINE_SECONDS) -> list[object]:
    sink = ElasticSink(elastic)
    action = BulkAction("things", "a", 1, None, b"{}")
    return [sink.write([action], within).outcomes[0] for _ in range(times)]


@pytest.mark.parametrize("other", [away, node()], ids=["everything", "bulks only"])
def test_a_node_that_answers_503_where_another_accepts_is_left_out(other: Callable[[Request], bytes]) -> None:
    with (
        scripted(away, other) as bad,
        scripted(taken, node()) as good,
        elastic_at(bad.url, good.url) as (elastic, facts),
    ):
        assert write_one(elastic, 4, PATIENCE_SECONDS) == [WRITTEN] * 4
        assert [fact.node for fact in facts if isinstance(fact, NodeLeftOut)][:1] == [bad.url]
        assert len(bad.bulks) <= 1


def test_a_document_that_breaks_connections_takes_no_node_out() -> None:
    with two_nodes(node(), node(), bulk=lambda _: b"") as (one, two, elastic, facts):
        (outcome,) = write_one(elastic)
        assert isinstance(outcome, Failure)
        assert (outcome.reason, outcome.whole) == (Reason.CONNECT, False)
        assert not facts
        assert len(one.bulks) + len(two.bulks) == 2


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["node_not_connected_exception", "retry_on_primary_exception"])
def test_a_document_whose_shard_moves_is_sent_once_more_with_the_whole_wait(kind: str, times: int) -> None:
    replies = [leaving(kind)] * times
    with scripted(lambda request: replies.pop() if replies else taken(request)) as server:
        with elastic_at(server.url) as (elastic, _):
            outcomes = write_one(elastic)
        assert [isinstance(outcome, Failure) for outcome in outcomes] == [times == 2]
        assert len(server.bulks) == 2
        assert "timeout=800ms" in server.bulks[1].path  # of a deadline of one second


def item(status: int, kind: str) -> bytes:
    error = {"type": kind, "reason": "told"}
    return answer(200, json.dumps({"errors": True, "items": [{"index": {"status": status, "error": error}}]}).encode())


NO_MASTER = answer(503, b'{"error":{"type":"cluster_block_exception","reason":"blocked by: no master"},"status":503}')
AWAY = {
    "no primary": item(503, "unavailable_shards_exception"),
    "its node is leaving": leaving("node_not_connected_exception"),
    "no master": NO_MASTER,
}


def are_excused(outcomes: list[object]) -> list[bool]:
    assert all(isinstance(outcome, Failure) for outcome in outcomes)
    return [isinstance(outcome, Failure) and outcome.moving for outcome in outcomes]


@pytest.mark.parametrize("reply", AWAY.values(), ids=AWAY)
def test_a_shard_or_master_that_is_missing_while_a_node_is_left_out_costs_no_attempt_some_times(reply: bytes) -> None:
    with scripted(lambda _: reply, node()) as up:
        with elastic_at(up.url, NOBODY) as (elastic, _):
            sink = ElasticSink(elastic)
            action = BulkAction("things", "a", 1, None, b"{}")
            outcomes: list[object] = [sink.write([action], DEADLINE_SECONDS).outcomes[0] for _ in range(12)]
        assert are_excused(outcomes) == [True] * MOST_EXCUSED + [False] * 2
        with scripted(lambda _: reply, node()) as other, elastic_at(up.url, other.url) as (elastic, _):
            assert are_excused(write_one(elastic)) == [False]  # all nodes are there
        with elastic_at(up.url) as (elastic, _):
            assert are_excused(write_one(elastic)) == [False]


@pytest.mark.parametrize("first", [0, 1])
def test_a_node_that_goes_is_noticed_by_what_another_one_says(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the two gets the request."""
    monkeypatch.setattr("outbox.sink.client.secrets.randbelow", lambda _: first)
    replies, gone = [AWAY["no primary"]], threading.Event()

    def going(request: Request) -> bytes:
        return b"" if gone.is_set() else node()(request)

    with (
        scripted(lambda request: replies.pop() if replies else taken(request), node()) as up,
        scripted(going, going) as goes,
        elastic_at(up.url, goes.url) as (elastic, _),
    ):
        assert isinstance(elastic.call("GET", "/things/_alias"), Reply)
        gone.set()
        assert are_excused(write_one(elastic)) == [True]
        assert write_one(elastic) == [WRITTEN]


def test_a_request_that_is_lost_at_the_last_node_is_not_excused() -> None:
    """The document may have brought the others down. That one node is down does not hide that it was sent."""
    with scripted(lambda _: b"", node()) as up, elastic_at(up.url, NOBODY) as (elastic, _):
        lost = elastic.call("PUT", "/things/_bulk", b"{}\n")
        assert isinstance(lost, NoReply)
        assert lost.sent
        assert are_excused(write_one(elastic, 2)) == [False] * 2


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (lambda _: answer(200, about("_na_")), "not joined a cluster"),
        (lambda _: answer(200, b"<html>", kind="text/html"), "not that of a search cluster"),
        (away, "503"),
        *((partial(refusing, status), f"its reply is {status}") for status in (301, 404)),
    ],
)
def test_what_is_no_node_of_a_cluster_gets_nothing(second: Callable[[Request], bytes], said: str) -> None:
    with two_nodes(node(), second) as (good, bad, elastic, facts):
        assert write_one(elastic, 4, PATIENCE_SECONDS) == [WRITTEN] * 4
        assert not bad.bulks
        (fact,) = [fact for fact in facts if isinstance(fact, NodeLeftOut)]
        assert said in fact.error
        found = {finding.detail.partition(" ")[0]: finding.level for finding in elastic.check_nodes()}
        assert found == {good.url: Level.OK, bad.url: Level.WARN}


def test_nodes_of_different_clusters_get_nothing_at_all_and_are_named() -> None:
    cluster = "two"

    def changing(request: Request) -> bytes:
        return node(cluster)(request)

    with two_nodes(node("one"), changing) as (one, two, elastic, _):
        outcomes = write_one(elastic, 3)
        last = outcomes[-1]
        assert isinstance(last, Failure)
        assert last.reason is Reason.ES_CONFIG  # systemic: the target pauses, no attempt is spent
        assert "different clusters" in last.error
        assert not one.bulks
        assert not two.bulks
        cluster = "one"  # as one cluster that was made anew
        assert write_one(elastic) == [WRITTEN]


def taken_unnamed(_: Request) -> bytes:
    return answer(200, b'{"errors":false,"items":[{"index":{"status":201}}]}', headers="")


def closed(settings: bytes) -> Callable[[Request], bytes]:
    """A node whose key may not ask for the cluster, as the documented ones."""

    def reply(request: Request) -> bytes:
        if request.path == "/":
            return refusing(403, request)
        return answer(200, settings if "index.uuid" in request.path else SEEN, headers="")

    return reply


SEEN = b'{"things":{"aliases":{},"settings":{}}}'
FIRST, SECOND = (b'{"things":{"settings":{"index.uuid":"%b"}}}' % name for name in (b"first", b"second"))


@pytest.mark.parametrize(
    ("settings", "level", "said"),
    [
        ((FIRST, FIRST), None, ""),
        ((FIRST, SECOND), Level.BAD, "index things (second)"),
        ((FIRST, b"{}"), None, ""),
    ],
)
def test_where_nobody_may_ask_for_the_cluster_the_targets_are_compared(
    settings: tuple[bytes, bytes], level: Level | None, said: str
) -> None:
    both = (closed(settings[0]), closed(settings[1]))
    with two_nodes(*both, bulk=taken_unnamed, product="opensearch", index="things") as (one, two, elastic, _):
        outcomes = write_one(elastic, 4)
        if level is Level.BAD:
            assert all(isinstance(outcome, Failure) and outcome.reason is Reason.ES_CONFIG for outcome in outcomes)
            assert not one.bulks
            assert not two.bulks
        else:
            assert outcomes == [WRITTEN] * 4
        found = [finding for finding in elastic.check_nodes() if finding.name == "nodes"]
        assert [finding.level for finding in found] == ([] if level is None else [level])
        assert all(said in finding.detail and finding.remedy for finding in found)


def test_what_may_have_been_applied_is_sent_again_only_if_that_changes_nothing() -> None:
    with two_nodes(break_off, node()) as (_, two, elastic, _):
        read = [elastic.call("GET", "/things/_alias") for _ in range(2)]
        assert [reply.status for reply in read if isinstance(reply, Reply)] == [200, 200]
        before = len(two.requests)
        swaps = [elastic.call("POST", "/_aliases", b"{}") for _ in range(2)]
        assert sum(isinstance(reply, NoReply) for reply in swaps) == 1
        assert [request.path for request in two.requests[before:]].count("/_aliases") == 1


def test_a_read_that_no_node_answers_in_time_costs_no_attempt_while_one_is_left_out() -> None:
    released = threading.Event()

    with scripted(taken, slow(released)) as up, elastic_at(up.url, NOBODY) as (elastic, _):
        try:
            (outcome,) = ElasticSink(elastic).write([BulkAction("things", "a", 1, None, b"{}")], 0.3).outcomes
        finally:
            released.set()
        assert are_excused([outcome]) == [True]
        assert not up.bulks
