"""A consumer group on a real broker: what is committed, when, by whom; and what is said of what is gone."""

import uuid
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from outbox.config import KafkaSettings
from outbox.errors import DatabaseDown
from outbox.facts import (
    LeaseLost,
    PartitionsAssigned,
    PartitionsRevoked,
    StreamGap,
    StreamSampled,
    Warned,
)
from outbox.policy.outcome import Failure, Reason
from tests.fixtures.kafka import KafkaDesk, Sent
from tests.fixtures.sinks import MemorySink
from tests.fixtures.streaming import GroupMember, an_event_record, committed_of, joined
from tests.fixtures.waiting import eventually
from tests.unit.kafka.test_events import MemoryRecords

PARTITIONS = 2
REFUSED = Failure(Reason.ES_REJECTED_DOCUMENT, "no", fingerprint="f")
AWAY = Failure(Reason.CONNECT, "gone", whole=True)


class Ground:
    """One topic, one group, one sink and one table for all members of a test."""

    def __init__(self, desk: KafkaDesk, topic: str) -> None:
        self.desk, self.topic = desk, topic
        self.group = f"group-{uuid.uuid4().hex[:12]}"
        self.sink = MemorySink()
        self.records = MemoryRecords()

    def settings(self, **more: Any) -> KafkaSettings:
        given = {"bootstrap_servers": self.desk.url, "topic": self.topic, "group": self.group, **more}
        return KafkaSettings(**given)

    def member(self, **more: Any) -> AbstractContextManager[GroupMember]:
        options = {"most_bytes": more.pop("most_bytes", 16_000_000)}
        if "read_before" in more:
            options["read_before"] = more.pop("read_before")
        return joined(self.settings(**more), self.records, self.sink, **options)

    def put(self, *records: Sent) -> None:
        self.desk.produce(self.topic, records)

    def fill(self, n: int, first: int = 0, partition: int = 0) -> None:
        self.put(*(an_event_record(str(k), k + 1, partition=partition) for k in range(first, first + n)))

    def finish(self, member: GroupMember) -> None:
        ends = {number: end for number, end in self.desk.ends(self.topic).items() if end}
        member.run_until(committed=ends, desk=self.desk, group=self.group, topic=self.topic)

    def committed(self) -> dict[int, int]:
        return eventually(lambda: [committed_of(self.desk, self.group, self.topic) or {}])[0]

    def ids(self) -> set[str]:
        return {id.removeprefix("article:") for _, id in self.sink.documents}

    def refuse(self, *ids: str) -> None:
        bad = {f"article:{id}" for id in ids}
        self.sink.refuse = lambda action: REFUSED if action.id in bad else None


@pytest.fixture
def ground(kafka: KafkaDesk, topic: str) -> Ground:
    return Ground(kafka, topic)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_what_is_written_is_committed_and_a_new_member_begins_there(ground: Ground, protocol: str) -> None:
    ground.fill(150)
    ground.fill(50, 150, partition=1)
    with ground.member(group_protocol=protocol) as member:
        ground.finish(member)
        assert {number for fact in member.of(PartitionsAssigned) for number in fact.partitions} == {0, 1}
    assert len(ground.ids()) == 200
    ground.sink.documents.clear()
    ground.fill(5, 500)
    with ground.member(group_protocol=protocol) as member:
        ground.finish(member)
    assert ground.ids() == {"500", "501", "502", "503", "504"}


def test_nothing_is_committed_before_it_is_answered_or_stored(ground: Ground) -> None:
    """The index is down, then PostgreSQL is: each holds what needs it, and nothing above that is committed."""
    ground.fill(20)
    ground.sink.away = AWAY
    with ground.member() as member:
        eventually(member.step, what="a first batch")
        assert ground.committed() == {0: 0}
        ground.sink.away = None
        ground.refuse("7")
        ground.records.away = True
        with pytest.raises(DatabaseDown):
            eventually(member.step, what="a second batch")
        # The records are ones that an earlier owner may have sent: they wait for the check against deletes.
        assert ground.committed() == {0: 0}
        ground.records.away = False
        ground.finish(member)
    assert list(ground.records.rows) == [f"kafka:{ground.topic}:0:7"]
    assert ground.committed() == {0: 20}


def test_commits_wait_while_it_is_not_known_whether_what_was_written_counts(ground: Ground) -> None:
    ground.fill(10)
    with ground.member() as member:
        member.commits.clear()
        eventually(member.step, what="a batch")
        eventually(lambda: len(ground.ids()) == 10)
        eventually(lambda: len(member.of(StreamSampled)) > 1)
        assert ground.committed() == {0: 0}
        ground.sink.documents.clear()
        member.reader.rewind()
        member.commits.set()
        ground.finish(member)
        assert len(ground.ids()) == 10, "read and written again"


def test_what_a_revoked_partition_had_in_flight_is_neither_committed_nor_stored(ground: Ground) -> None:
    ground.fill(10, partition=0)
    ground.fill(10, 10, partition=1)
    ground.refuse(*map(str, range(20)))
    with ground.member() as first:
        eventually(lambda: sum(len(p.waiting) for p in first.partitions.all()) == 20, what="all is read")
        claimed = first.worker.claim(20)
        assert len(claimed.events) == 20
        with ground.member() as second:
            (revoked,) = eventually(lambda: first.of(PartitionsRevoked), what="one partition is handed over")
            assert revoked.in_flight == 10
            first.worker.projector.project(claimed, 0)
            assert [fact.count for fact in first.worker.of(LeaseLost)] == [10]
            assert len(ground.records.rows) == 10, "only those of the partition that is still ours"
            ground.refuse()
            eventually(lambda: second.step() or ground.committed().get(revoked.partitions[0]) == 10)
            ground.finish(second)


def test_records_that_were_removed_before_they_were_read_are_a_gap_and_the_rest_is_read(
    ground: Ground, kafka: KafkaDesk
) -> None:
    ground.fill(30)
    kafka.commit(ground.group, ground.topic, {0: 5})
    deleted = kafka.admin.delete_records([TopicPartition(ground.topic, 0, 20)])
    for done in deleted.values():
        done.result(60)
    with ground.member() as member:
        ground.finish(member)
        (gap,) = member.of(StreamGap)
        assert (gap.partition, gap.expected, gap.found) == (0, 5, 20)
    assert ground.ids() == {str(n) for n in range(20, 30)}


def test_records_that_are_removed_while_it_reads_are_a_gap_too(ground: Ground, kafka: KafkaDesk) -> None:
    ground.fill(3)
    with ground.member() as member:
        ground.finish(member)
        value = b'{"t": "' + b"x" * 100_000 + b'"}'
        member.partitions._most_bytes = 1  # after what one request brings it reads no more
        ground.put(*(an_event_record(str(n), n + 1, partition=0, value=value) for n in range(3, 200)))
        eventually(lambda: member.reader._paused, what="a pause")
        for done in kafka.admin.delete_records([TopicPartition(ground.topic, 0, 150)]).values():
            done.result(60)
        member.partitions._most_bytes = 16_000_000
        ground.finish(member)
        gaps = member.of(StreamGap)
    assert member.errors == []
    assert [gap.found for gap in gaps] == [150], "never silently, and once"
    read = gaps[0].expected
    assert ground.ids() == {str(n) for n in (*range(read), *range(150, 200))}, "what was read before is not lost"


def made_anew(ground: Ground, records: int) -> None:
    """A topic of the same name with new records, as fast as a broker lets it."""
    ground.desk.delete_topic(ground.topic)

    def made() -> bool:
        with suppress(KafkaException):  # it is deleted, but not gone
            return bool(ground.desk.create_topic(ground.topic, PARTITIONS))
        return False

    eventually(made, every=0.05, what="the new topic")
    ground.fill(records, 10_000)


def test_a_topic_that_is_made_anew_beside_a_worker_is_read_from_its_beginning(ground: Ground) -> None:
    """It read on at its old offset: 200 of the new records were skipped."""
    ground.fill(200)
    with ground.member() as member:
        ground.finish(member)
        made_anew(ground, 500)
        eventually(lambda: (member.step(), member.of(Warned))[1], what="the new topic is noticed")
        ground.finish(member)
    assert {str(n) for n in range(10_000, 10_500)} <= ground.ids()
    assert [fact.event for fact in member.of(Warned)] == ["stream.topic_anew"]
    assert {fact.partition for fact in member.of(StreamGap)} >= {0}
    assert member.errors == []


@pytest.mark.release("ten seconds each; test_start.py has the cases", keep=("False",))
@pytest.mark.parametrize("moved", [False, True])
def test_a_topic_that_was_made_anew_while_no_worker_ran_is_said_to_be_a_gap(ground: Ground, moved: bool) -> None:
    """`moved`: a worker of the old topic committed its offset again, as one does that has not noticed yet."""
    seen: dict[str, str] = {}

    def read_before(topic_id: str) -> str | None:
        before, seen["id"] = seen.get("id"), topic_id
        return before

    ground.fill(200)
    with ground.member(read_before=read_before) as member:
        ground.finish(member)
    old = seen["id"]
    made_anew(ground, 500)
    if moved:
        seen["id"] = ""  # PostgreSQL has forgotten it
        consumer = Consumer({"bootstrap.servers": ground.desk.url, "group.id": ground.group})
        consumer.commit(offsets=[TopicPartition(ground.topic, 0, 200, f"topic={old}")], asynchronous=False)
        consumer.close()
    with ground.member(read_before=read_before) as member:
        ground.finish(member)
        assert {fact.partition for fact in member.of(StreamGap)} >= {0}
    assert {str(n) for n in range(10_000, 10_500)} <= ground.ids()


def test_reading_stops_when_enough_waits_and_polling_goes_on(ground: Ground) -> None:
    value = b'{"t": "' + b"x" * 5_000 + b'"}'
    ground.put(*(an_event_record(str(n), n + 1, value=value) for n in range(400)))
    with ground.member(most_bytes=200_000, session_timeout_seconds=6) as member:
        eventually(lambda: member.reader._paused, what="a pause")
        before = len(member.of(StreamSampled))
        eventually(lambda: len(member.of(StreamSampled)) > before + 2, what="it polls on")
        assert member.partitions._bytes < 8_000_000
        assert not member.of(PartitionsRevoked)
        ground.finish(member)
    assert len(ground.ids()) == 400
