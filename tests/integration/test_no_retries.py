"""No event is retried inside the sink: whatever the server does, a batch is sent once, and its rows wait their turn."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from outbox.config import ElasticSettings
from outbox.sink.client import connect
from outbox.sink.elastic import ElasticSink
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.scripted import PRODUCT, Answer, Request, ScriptedServer, answer, scripted

LEASE_SECONDS = 2.0  # a request's deadline is a part of it


def error(status: int, kind: str) -> bytes:
    return answer(status, json.dumps({"error": {"type": kind, "reason": "told"}, "status": status}).encode())


def item(status: int, kind: str) -> bytes:
    """Of three documents the second one."""
    fine: dict[str, object] = {"status": 201}
    bad = {"status": status, "error": {"type": kind, "reason": "told"}}
    return answer(200, json.dumps({"errors": True, "items": [{"index": each} for each in (fine, bad, fine)]}).encode())


def hang(ended: threading.Event) -> Iterator[bytes]:
    ended.wait()
    yield b""


class Case(NamedTuple):
    """`bulks`: how often three documents are sent. Five: once together, then in halves, down to each alone."""

    reply: bytes
    bulks: int = 1


CASES = {
    "429": Case(error(429, "es_rejected_execution_exception")),
    "429 with a time": Case(answer(429, headers=f"{PRODUCT}retry-after: 0\r\n")),
    "429 by a breaker": Case(error(429, "circuit_breaking_exception")),
    "503": Case(error(503, "cluster_block_exception")),
    "503 with a time": Case(answer(503, headers=f"{PRODUCT}retry-after: 0\r\n")),
    "503 of a proxy": Case(answer(503, b"<html>", kind="text/html", headers="")),
    "500": Case(error(500, "illegal_state_exception")),
    "502": Case(answer(502, headers="")),
    "504": Case(answer(504, headers="")),
    "408": Case(answer(408)),
    "a redirect": Case(answer(307, headers=f"{PRODUCT}location: /things/_bulk\r\n")),
    "no JSON": Case(answer(200, b"hello")),
    "429 of one document": Case(item(429, "es_rejected_execution_exception")),
    "503 of one document": Case(item(503, "unavailable_shards_exception")),
    "500 of one document": Case(item(500, "illegal_state_exception")),
    "413": Case(answer(413), bulks=5),
    "a broken connection": Case(b"", bulks=5),
}


def project(queue: EventTable, *servers: ScriptedServer) -> None:
    """One batch of a worker, from the claim to the settle."""
    elastic = connect(ElasticSettings(url=",".join(server.url for server in servers)))
    try:
        InProcess(Parts(queue.store(), ElasticSink(elastic), lease_seconds=LEASE_SECONDS)).lane.step()
    finally:
        elastic.close()


def sent_twice(server: ScriptedServer) -> list[bytes]:
    return [body for body, times in Counter(request.body for request in server.bulks).items() if times > 1]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_whatever_is_answered_is_sent_again_only_to_find_the_document_at_fault(queue: EventTable, case: Case) -> None:
    queue.produce_many(3)
    with scripted(lambda _: case.reply) as server:
        project(queue, server)
    assert len(server.bulks) == case.bulks
    assert sent_twice(server) == []
    assert [row for row in queue.rows() if row.attempts > 1] == []
    assert [row for row in queue.rows("status = 'pending'") if row.next_retry_at is None and row.attempts] == []


def test_what_is_not_answered_in_time_is_not_sent_again(queue: EventTable) -> None:
    queue.produce("1")
    ended = threading.Event()
    with ExitStack() as stack:
        server = stack.enter_context(scripted(lambda _: hang(ended)))
        stack.callback(ended.set)
        project(queue, server)
    assert len(server.bulks) == 1
    (row,) = queue.rows()
    assert (row.status, row.attempts, row.error_reason) == ("pending", 1, "timeout")
    assert row.next_retry_at is not None


@pytest.mark.parametrize(("reply", "bulks"), [(error(503, "told"), 2), (error(429, "told"), 1)], ids=["503", "429"])
def test_with_two_nodes_each_gets_a_batch_once_at_most(queue: EventTable, reply: bytes, bulks: int) -> None:
    def other(request: Request) -> Answer:
        about = {"cluster_uuid": "one", "things": {"aliases": {}, "settings": {}}}
        return answer(200, b"" if request.method == "HEAD" else json.dumps(about).encode())

    queue.produce_many(3)
    with scripted(lambda _: reply, other) as one, scripted(lambda _: reply, other) as two:
        project(queue, one, two)
    assert len(one.bulks) + len(two.bulks) == bulks
    assert sent_twice(one) + sent_twice(two) == []
