"""Judges Kafka where it is the source: whether it answers, what is gone, what will be, who reads it, what is in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from outbox.errors import StreamDown
from outbox.ops.doctor.doctor import guarded
from outbox.ops.status import age
from outbox.ports import Finding, GroupReader, Level, PartitionOffsets, RecordSeen, TopicAbout

if TYPE_CHECKING:  # the client of Kafka is installed only where it is used
    from outbox.kafka.group_progress import KafkaOffsets

NAME: Final = "kafka"
SHORT_SECONDS: Final = 86_400.0  # a topic that keeps less forgives no weekend
NEAR, TOO_NEAR = 0.5, 0.8  # of the retention: the age of what is to be read next
LOOKED_AT: Final = 50  # of the newest records of each partition
MOST_NAMED: Final = 3
GAP: Final = "docs/runbooks/OutboxStreamGap.md"


@dataclass(frozen=True, slots=True)
class StreamExam:
    """`workers`: those that the database knows, running or not. `issued`: the last version that it has given out.
    `rows_seconds`: how long finished rows are kept; None: for ever."""

    offsets: KafkaOffsets
    workers: Callable[[], Collection[str]]
    issued: Callable[[], int]
    rows_seconds: float | None = None

    def examine(self) -> Iterator[Finding]:
        try:
            found = self.offsets.read()
        except StreamDown as error:
            remedy = "Start Kafka, create the topic, or correct KAFKA_BOOTSTRAP_SERVERS, KAFKA_TOPIC and the login."
            yield Finding(NAME, Level.BAD, error.detail or error.message, remedy)
            return
        lag = sum(each.lag for each in found)
        where = f"topic {self.offsets.topic}, {len(found)} partitions, group {self.offsets.group}"
        yield Finding(NAME, Level.OK, f"{where}: {lag:,} records to be read")
        yield from _gaps(found)
        yield from guarded("topic", lambda: self._kept(found))
        yield from guarded("protocol", self._protocol)
        yield from guarded("group", lambda: group(self.offsets.readers(), self.workers(), lag))
        yield from guarded("records", lambda: records(self.offsets.newest(LOOKED_AT), self.issued))

    def _kept(self, found: Sequence[PartitionOffsets]) -> Iterator[Finding]:
        about = self.offsets.about()
        yield from _policy(about)
        yield from _copies(about)
        yield from _rows(about, self.rows_seconds)
        if about.retention_seconds is not None:
            yield from _soon_gone(self.offsets.ages(found), about.retention_seconds)

    def _protocol(self) -> Iterator[Finding]:
        if self.offsets.lacks_protocol():
            detail = "these brokers do not know the group protocol that is set: no worker gets a partition"
            yield Finding("protocol", Level.BAD, detail, "Set KAFKA_GROUP_PROTOCOL=classic, or use Kafka 4.0 or later.")


def _gaps(found: Sequence[PartitionOffsets]) -> Iterator[Finding]:
    for each in found:
        if each.is_gone:
            detail = (
                f"partition {each.partition}: offset {each.committed} is to be read next, "
                f"but the topic has {each.oldest} to {each.end}"
            )
            yield Finding("gap", Level.BAD, detail, f"They are lost for the index: run `outbox verify`, see {GAP}.")


def _policy(about: TopicAbout) -> Iterator[Finding]:
    if about.retention_seconds is not None and about.retention_seconds < SHORT_SECONDS:
        hours = about.retention_seconds / 3600
        detail = f"the topic keeps records for {hours:.1f} h: workers that are down for longer leave a gap"
        yield Finding("retention", Level.WARN, detail, "Raise the topic's `retention.ms` to a few days.")
    if about.is_compacted:
        detail = "the topic is compacted: of each entity only the newest record is kept"
        remedy = "Use `cleanup.policy=delete`: a replay of the topic would miss what older records wrote elsewhere."
        yield Finding("retention", Level.WARN, detail, remedy)


def _copies(about: TopicAbout) -> Iterator[Finding]:
    """What the connector has passed on, the database's log no longer has: a record that Kafka loses is lost."""
    if about.brokers > 1 and about.copies == 1:
        detail = f"the topic has one copy, on one of {about.brokers} brokers: with its disk the records are lost"
        remedy = "Give it three (`kafka-reassign-partitions.sh`), and `min.insync.replicas=2`."
        yield Finding("copies", Level.WARN, detail, remedy)
    elif 1 < about.confirmed >= about.copies:
        detail = (
            f"{about.confirmed} copies must confirm a record, and the topic has {about.copies}: with one broker down "
            "nothing can be written"
        )
        remedy = f"Set `min.insync.replicas={max(about.copies - 1, 1)}` for the topic."
        yield Finding("copies", Level.WARN, detail, remedy)
    elif about.copies > about.confirmed == 1:
        detail = (
            f"one of {about.copies} copies confirms a record: it is lost if that broker dies before the others have it"
        )
        yield Finding("copies", Level.WARN, detail, "Set `min.insync.replicas=2` for the topic.")


def _rows(about: TopicAbout, rows_seconds: float | None) -> Iterator[Finding]:
    """A record that is read again, after the group was set back, is compared with the row of its event."""
    topic = about.retention_seconds
    if rows_seconds is not None and (topic is None or topic > rows_seconds):
        kept = "for ever" if topic is None else f"for {age(topic)}"
        detail = (
            f"the topic keeps records {kept}, and finished rows are pruned after {age(rows_seconds)}: if the topic is "
            "read again from its beginning, events come back that people have discarded"
        )
        remedy = "Set OUTBOX_RETENTION_DAYS to what the topic keeps, or `retention.ms` to less."
        yield Finding("retention", Level.WARN, detail, remedy)


def _soon_gone(ages: Mapping[int, float], retention_seconds: float) -> Iterator[Finding]:
    """The oldest lag against what the topic keeps."""
    near = {number: old for number, old in ages.items() if old > NEAR * retention_seconds}
    if near:
        number = max(near, key=lambda each: near[each])
        detail = (
            f"partition {number}: what is to be read next is {age(near[number])} old, and the topic keeps records for "
            f"{age(retention_seconds)}: then it is a gap"
        )
        level = Level.BAD if near[number] > TOO_NEAR * retention_seconds else Level.WARN
        yield Finding("retention", level, detail, "Raise `retention.ms` now; then see why it is so far behind.")


# Who reads


def group(readers: Sequence[GroupReader], workers: Collection[str], lag: int) -> Iterator[Finding]:
    """Members that are not workers of this installation take events away from its index."""
    strangers = [each for each in readers if each.worker is None or each.worker not in workers]
    for each in strangers[:MOST_NAMED]:
        has = f"partitions {', '.join(map(str, each.partitions))}" if each.partitions else "no partition now"
        detail = f"{each.client} at {each.host} reads as this group and is no worker of this database; it has {has}"
        remedy = "Events that it passes are missing in this index: give it a KAFKA_GROUP of its own, see " + GAP + "."
        yield Finding("group", Level.BAD, detail, remedy)
    if not readers and lag:
        yield Finding("group", Level.WARN, "nobody reads the topic as this group", "Start `outbox run`.")
    elif readers and not strangers:
        yield Finding("group", Level.OK, f"{len(readers)} workers share the partitions")


# What is in it


def records(found: Sequence[RecordSeen], issued: Callable[[], int]) -> Iterator[Finding]:
    if not found:
        return
    problems = [*_no_events(found), *_scattered(found), *_origins(found)]
    yield from problems
    if not problems:
        yield Finding("records", Level.OK, f"the newest {len(found)} have the entity as their key, one partition each")
    highest, last = max(each.version for each in found), issued()
    if highest > last and not any(each.name == "versions" for each in problems):
        detail = (
            f"a version of the topic ({highest}) is above the last one of this database ({last}): producers give "
            "versions of their own, or another database writes to it, which cannot be known from here"
        )
        remedy = "Where two databases feed one index, their entity types or ids must differ: versions do not compare."
        yield Finding("versions", Level.UNKNOWN, detail, remedy)


def _no_events(found: Sequence[RecordSeen]) -> Iterator[Finding]:
    by_class: dict[str, list[RecordSeen]] = {}
    for each in found:
        if each.not_event:
            by_class.setdefault(each.not_event, []).append(each)
    for why, bad in by_class.items():
        detail = f"{len(bad)} of the newest {len(found)} are no events: {why} ({_places(bad)})"
        level = Level.BAD if "key" in why else Level.WARN
        yield Finding("records", level, detail, "Correct the connector or the producer (docs/kafka.md, its form).")


def _scattered(found: Sequence[RecordSeen]) -> Iterator[Finding]:
    """One key in two partitions: then nothing keeps the order of its records."""
    places: dict[str, dict[int, RecordSeen]] = {}
    for each in found:
        places.setdefault(each.key, {})[each.partition] = each
    twice = [list(each.values()) for each in places.values() if len(each) > 1]
    if twice:
        detail = f"{len(twice)} entities have records in several partitions ({_places(twice[0])})"
        remedy = (
            "Partitions were added meanwhile, or producers choose partitions differently: give all the same "
            "partitioner. Documents stay right: versions and the rows of deletes decide, not the order."
        )
        yield Finding("partitions", Level.WARN, detail, remedy)


def _origins(found: Sequence[RecordSeen]) -> Iterator[Finding]:
    """By the database's id that our event log writes."""
    by_type: dict[str, set[str]] = {}
    for each in found:
        if each.origin and not each.not_event:
            by_type.setdefault(each.entity_type, set()).add(each.origin)
    for kind, origins in sorted(by_type.items()):
        if len(origins) > 1:
            detail = f"records of type {kind} come from several databases: {', '.join(sorted(origins)[:MOST_NAMED])}"
            remedy = (
                "Give each database its own OUTBOX_PROJECTION, or let types or ids differ: versions do not compare."
            )
            yield Finding("versions", Level.WARN, detail, remedy)


def _places(found: Sequence[RecordSeen]) -> str:
    named = ", ".join(f"{each.partition}:{each.offset}" for each in found[:MOST_NAMED])
    return f"partition:offset {named}"
