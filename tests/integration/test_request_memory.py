"""A request that was lost leaves nothing in memory: its body, and all documents of its write, are free at once."""

import gc
import threading
from collections.abc import Iterator

import pytest

from outbox.config import ElasticSettings
from outbox.policy.outcome import Failure
from outbox.ports import BulkAction
from outbox.sink.client import connect
from outbox.sink.elastic import ElasticSink
from tests.fixtures.processes import find_free_port
from tests.fixtures.scripted import Answer, scripted

DOCUMENT = b'{"text": "%b"}' % (b"x" * 5_000_000)


@pytest.fixture
def without_collector() -> Iterator[None]:
    """A daemon's runs seldom: 30 MB in a cycle stay for as long as it is idle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> int:
    """How many bodies of this document are in memory, by the lists that hold them."""
    lists = (found for found in gc.get_objects() if type(found) is list and len(found) < 10)
    return sum(DOCUMENT is one for found in lists for one in found)


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("how", ["silent", "reset", "refused"])
def test_a_lost_request_is_free_before_the_next_one(how: str, nodes: int) -> None:
    ended = threading.Event()

    def lose() -> Iterator[bytes]:
        if how == "silent":
            ended.wait()
        yield b""

    def reply(_: object) -> Answer:
        return lose()

    with scripted(reply) as one, scripted(reply) as other:
        urls = ",".join([one.url, other.url][:nodes])
        if how == "refused":
            urls = ",".join(f"http://127.0.0.1:{find_free_port()}" for _ in range(nodes))
        sink = ElasticSink(connect(ElasticSettings(url=urls), 2, lambda _: None), 8 << 20, lambda: 500, lambda _: None)
        found = sink.write([BulkAction("articles", "page:1", 5, None, DOCUMENT)], 1.0).outcomes
        ended.set()
        assert isinstance(found[0], Failure)
        assert held() == 0
