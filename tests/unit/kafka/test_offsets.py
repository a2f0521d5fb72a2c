"""What the doctor says of Kafka's offsets, topic and group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from outbox.errors import StreamDown
from outbox.kafka.findings import StreamExam
from outbox.ops.status import StreamRecords, in_kafka, read_stream, wait_until_caught_up
from outbox.ports import Finding, GroupReader, Level, PartitionOffsets, RecordSeen, TopicAbout


@dataclass
class FakeOffsets:
    places: list[PartitionOffsets] = field(default_factory=list)
    kept: TopicAbout = field(default_factory=lambda: TopicAbout(604_800.0, False))
    down: str = ""
    old: dict[int, float] = field(default_factory=dict)
    records: list[RecordSeen] = field(default_factory=list)
    members: list[GroupReader] = field(default_factory=list)
    topic: str = "events"
    group: str = "search"
    old_brokers: bool = False

    def read(self) -> Sequence[PartitionOffsets]:
        if self.down:
            raise StreamDown(self.down)
        return list(self.places)

    def ages(self, places: Sequence[PartitionOffsets]) -> Mapping[int, float]:
        return self.old

    def about(self) -> TopicAbout:
        return self.kept

    def resting(self, open_events: Mapping[int, int]) -> Mapping[int, str]:
        return {}

    def lacks_protocol(self) -> bool:
        return self.old_brokers

    def newest(self, most: int) -> Sequence[RecordSeen]:
        return self.records

    def readers(self) -> Sequence[GroupReader]:
        return self.members


def places(*each: tuple[int, int, int | None]) -> list[PartitionOffsets]:
    return [PartitionOffsets(number, *rest) for number, rest in enumerate(each)]


def examined(offsets: FakeOffsets) -> list[Finding]:
    return list(StreamExam(cast(Any, offsets), lambda: {"w-1", "w-2"}, lambda: 1000, 604_800.0).examine())


TWO = places((0, 10, 10), (0, 5, 5))
WEEK = TopicAbout(604_800.0, False)


def reader(worker: str) -> GroupReader:
    return GroupReader(f"outbox-{worker}", "10.0.0.1", (0, 1))


def a_record(partition: int = 0, version: int = 7, not_event: str = "", origin: str = "") -> RecordSeen:
    return RecordSeen(partition, 3, "article:1", "article", version, not_event, origin)


@pytest.mark.parametrize(
    ("offsets", "name", "level"),
    [
        (FakeOffsets(down="no broker"), "kafka", Level.BAD),
        (FakeOffsets(places((8, 10, 3), (0, 1, 1))), "gap", Level.BAD),
        (FakeOffsets(places((0, 1, 1), (0, 1, 1)), TopicAbout(3600.0, False)), "retention", Level.WARN),
        (FakeOffsets(places((0, 1, 1), (0, 1, 1)), TopicAbout(604_800.0, True)), "retention", Level.WARN),
        (FakeOffsets(TWO, old_brokers=True), "protocol", Level.BAD),
        (FakeOffsets(TWO, WEEK._replace(brokers=3)), "copies", Level.WARN),
        (FakeOffsets(TWO, WEEK._replace(brokers=3, copies=2, confirmed=2)), "copies", Level.WARN),
        (FakeOffsets(places((0, 9, 1), (0, 1, 1)), WEEK, old={0: 400_000.0}), "retention", Level.WARN),
        (FakeOffsets(places((0, 9, 1), (0, 1, 1)), WEEK, old={0: 590_000.0}), "retention", Level.BAD),
        (FakeOffsets(TWO, members=[reader("w-1"), reader("w-9")]), "group", Level.BAD),
        (FakeOffsets(TWO, members=[GroupReader("console-consumer", "h", (0,))]), "group", Level.BAD),
        (FakeOffsets(places((0, 9, 1), (0, 1, 1))), "group", Level.WARN),
        (FakeOffsets(TWO, records=[a_record(not_event="the key is not entity_type:entity_id")]), "records", Level.BAD),
        (FakeOffsets(TWO, records=[a_record(), a_record(partition=1)]), "partitions", Level.WARN),
        (FakeOffsets(TWO, records=[a_record(origin="a"), a_record(origin="b")]), "versions", Level.WARN),
        (FakeOffsets(TWO, records=[a_record(version=1001)]), "versions", Level.UNKNOWN),
    ],
)
def test_the_doctor_names_what_is_wrong_with_a_remedy(offsets: FakeOffsets, name: str, level: Level) -> None:
    (finding,) = [each for each in examined(offsets) if each.name == name]
    assert finding.level is level
    assert finding.remedy


@pytest.mark.parametrize(
    ("each", "lag", "said"),
    [
        ([(0, 10, 10), (5, 7, 6)], 1, "; 1 record to be read from Kafka"),
        ([(0, 10, 0), (5, 7, None)], 12, "; 12 records to be read from Kafka"),
        ([(0, 0, None)], 0, "; nothing waits in Kafka"),
        ([(8, 10, 3)], 7, "; a gap in Kafka's partition 0: what is to be read next is gone (docs/kafka.md)"),
        ([(0, 2, 900)], 0, "; a gap in Kafka's partition 0: what is to be read next is gone (docs/kafka.md)"),
    ],
)
def test_the_status_says_what_waits_and_what_is_gone(
    each: list[tuple[int, int, int | None]], lag: int, said: str
) -> None:
    found = read_stream(FakeOffsets(places(*each)))
    assert (found.lag, in_kafka(found)) == (lag, said)
    assert found.as_json()["partitions"][0]["lag"] == found.partitions[0].lag


def test_waiting_counts_the_records_that_were_there_at_first() -> None:
    offsets = FakeOffsets(places((0, 10, 4), (0, 5, None)))

    def meanwhile(_: float) -> None:
        """A record more each time, and three that are read."""
        first, second = offsets.places
        offsets.places = [
            first._replace(end=first.end + 1, committed=min((first.committed or 0) + 3, first.end + 1)),
            second._replace(committed=min((second.committed or 0) + 3, 5)),
        ]

    waited = wait_until_caught_up(StreamRecords(offsets), None, sleep=meanwhile)
    assert waited.caught_up
    assert offsets.places[0].committed == 10
