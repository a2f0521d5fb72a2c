"""A consumer that was left: what it calls back later touches nothing, and its close holds nobody up."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from outbox.config import KafkaSettings
from outbox.facts import Beat, CommitRefused, Fact, PartitionsAssigned, PartitionsRevoked, StreamFault
from outbox.kafka import consumer as reading
from outbox.kafka import membership
from outbox.kafka.consumer import MOST_CLOSING, StreamReader
from outbox.kafka.partitions import Partitions
from outbox.policy.backoff import Backoff
from tests.fixtures.records import TOPIC, a_record
from tests.fixtures.waiting import eventually

ONE = [TopicPartition(TOPIC, 0)]


class OneTopic:
    """Its id, which never changes: no broker is there to be asked."""

    known = "t"
    error = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def learn(self, seconds: float) -> str:
        return self.known

    def has_changed(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def one_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TopicId", OneTopic)


class Client:
    """A client that the test calls back. Its `close` takes as long as the test says, as with a frozen coordinator."""

    def __init__(self, on_error: Callable[..., None], on_commit: Callable[..., None]) -> None:
        self.on_error, self.on_commit = on_error, on_commit
        self.on: dict[str, Callable[..., None]] = {}
        self.commits: list[dict[str, Any]] = []  # of progress
        self.marks: list[tuple[int, str]] = []  # of an offset that stays as it was
        self.may_close = threading.Event()
        self.closing = threading.Event()
        self.next: list[Callable[[], None]] = []
        self.committed_fails: KafkaException | None = None
        self.paused: set[int] = set()  # the client keeps this, also over assignments

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.on = callbacks

    def consume(self, most: int, seconds: float) -> list[Any]:
        if self.next:
            self.next.pop(0)()
        time.sleep(0.001)
        return []

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self.committed_fails is not None:
            raise self.committed_fails
        return [TopicPartition(place.topic, place.partition, OFFSET_INVALID) for place in places]

    def get_watermark_offsets(self, place: TopicPartition, **_: Any) -> tuple[int, int]:
        return 0, 10

    def commit(self, **given: Any) -> None:
        named = [(place.offset, place.metadata.removesuffix(";topic=t")) for place in given["offsets"]]
        marks = [mark for mark in named if mark[1].startswith("begun=")]
        self.marks += marks
        if not marks:
            self.commits.append(given)

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused |= {place.partition for place in places}

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused -= {place.partition for place in places}

    def incremental_assign(self, places: list[TopicPartition]) -> None: ...

    def incremental_unassign(self, places: list[TopicPartition]) -> None: ...

    def close(self) -> None:
        self.closing.set()
        self.may_close.wait(60)


class Bench:
    """One reader over clients that never answer by themselves."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.clients: list[Client] = []
        self.partitions = Partitions(time.monotonic, most_bytes=1_000_000, batch_size=10)
        self.stop = threading.Event()
        self.reader = StreamReader(
            KafkaSettings(bootstrap_servers="127.0.0.1:1", topic=TOPIC),
            self.partitions,
            self.facts.append,
            time.monotonic,
            client="test",
            wall_clock=time.time,
            wake=lambda: None,
        )

    def open(self, settings: KafkaSettings, *, client: str, on_error: Any, on_commit: Any) -> Client:
        self.clients.append(Client(on_error, on_commit))
        return self.clients[-1]

    def of(self, kind: type[Fact]) -> list[Fact]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def client(self, number: int) -> Client:
        return eventually(lambda: self.clients[number : number + 1], what=f"consumer {number}")[0]

    def assign(self, client: Client) -> None:
        client.next.append(lambda: client.on["on_assign"](client, ONE))
        eventually(self.partitions.all, what="an assignment")

    def fail(self, client: Client) -> None:
        def broken() -> None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        client.next.append(broken)

    def settle(self, *offsets: int) -> None:
        self.partitions.arrive([a_record(offset, str(offset)) for offset in offsets])
        for handed in self.partitions.take(10, 1_000_000):
            self.partitions.close(handed, handed.messages, (), 0.0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()
    monkeypatch.setattr(membership, "open_consumer", made.open)
    monkeypatch.setattr(reading, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(reading, "RETRY", Backoff(0.01, 0.02))
    with running(made):
        yield made


@contextmanager
def running(bench: Bench) -> Iterator[None]:
    thread = threading.Thread(target=bench.reader.run, args=(bench.stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        bench.stop.set()
        for client in bench.clients:
            client.may_close.set()
        thread.join(60)
        assert not thread.is_alive()


def test_what_a_consumer_calls_back_after_it_was_left_touches_nothing(bench: Bench) -> None:
    first = bench.client(0)
    bench.assign(first)
    bench.fail(first)
    second = bench.client(1)
    bench.assign(second)
    bench.settle(0, 1, 2)
    asked = eventually(lambda: second.commits)[0]["offsets"]
    (partition,) = bench.partitions.all()
    facts = len(bench.of(PartitionsRevoked)), len(bench.of(PartitionsAssigned))
    for name in ("on_assign", "on_revoke", "on_lost"):
        first.on[name](first, ONE)
    first.on_commit(None, asked)
    first.on_commit(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), asked)
    first.on_error(KafkaError(KafkaError._FATAL, "late", fatal=True))
    assert bench.partitions.all() == [partition]
    assert not partition.revoked
    assert (partition.committed, partition.asked) == (0, 3), "only its own consumer's answer confirms a commit"
    assert bench.of(CommitRefused) == []
    assert (len(bench.of(PartitionsRevoked)), len(bench.of(PartitionsAssigned))) == facts
    second.on_commit(None, asked)
    assert (partition.committed, partition.asked) == (3, None)


def test_a_begin_is_counted_with_the_offset_and_a_clean_end_without_progress_takes_it_back(bench: Bench) -> None:
    first = bench.client(0)
    bench.assign(first)
    assert first.marks == [(0, "begun=1")]
    bench.stop.set()
    assert eventually(lambda: first.marks[1:]) == [(0, "begun=0")]


@pytest.mark.parametrize("change", ["on_assign", "on_revoke", "on_lost"])
def test_no_partition_stays_paused_over_a_change_of_the_assignment(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The client keeps a pause, so the partition would never be read again."""
    monkeypatch.setattr(reading, "FULL_SECONDS", 0.0)
    client = bench.client(0)
    bench.assign(client)
    bench.partitions.arrive([a_record(offset, str(offset), value=b"x" * 600_000) for offset in range(2)])
    eventually(lambda: client.paused == {0}, what="a pause, because enough waits")
    given = [TopicPartition(TOPIC, 1)] if change == "on_assign" else ONE
    client.next.append(lambda: client.on[change](client, given))
    if change == "on_assign":
        eventually(lambda: len(bench.partitions.all()) == 2, what="a second partition")
        for handed in bench.partitions.take(10, 10_000_000):
            bench.partitions.close(handed, handed.messages, (), 0.0)
    eventually(lambda: not client.paused, what="nothing is paused")


def test_a_close_that_does_not_return_holds_nobody_up_and_another_consumer_joins(bench: Bench) -> None:
    first = bench.client(0)
    bench.assign(first)
    bench.fail(first)
    second = bench.client(1)
    assert first.closing.is_set()
    assert bench.of(StreamFault)
    bench.assign(second)
    assert len(bench.of(PartitionsAssigned)) == 2
    before = len(bench.of(Beat))
    eventually(lambda: len(bench.of(Beat)) > before, what="it beats")


def test_no_commit_is_waited_for(bench: Bench) -> None:
    first = bench.client(0)
    bench.assign(first)
    bench.settle(0)
    first.next.append(lambda: first.on["on_revoke"](first, ONE))
    eventually(lambda: bench.of(PartitionsRevoked))
    bench.assign(first)
    bench.settle(0, 1)
    bench.fail(first)
    bench.client(1)
    assert first.commits
    assert all(each["asynchronous"] for each in first.commits)


def test_where_too_many_cannot_be_closed_no_more_are_made_and_the_beat_ends(bench: Bench) -> None:
    for number in range(MOST_CLOSING):
        bench.fail(bench.client(number))
    eventually(lambda: len(bench.reader._closing) == MOST_CLOSING, what="all are closing")
    beats = len(bench.of(Beat))
    time.sleep(0.5)  # longer than the longest wait before another consumer
    assert (len(bench.clients), len(bench.of(Beat))) == (MOST_CLOSING, beats)
    bench.clients[1].may_close.set()
    bench.client(MOST_CLOSING)
