"""Reads how far a group has come, for people and for `doctor`: what the topic holds, what is committed, single records
of it. Joins no group and commits nothing."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from outbox.config import KafkaSettings
from outbox.errors import StreamDown
from outbox.kafka.connection import LARGEST_RESPONSE_BYTES, REFUSALS, code_of, coordinated, options, words
from outbox.kafka.open_rows import OpenRows
from outbox.kafka.record import is_tombstone, read
from outbox.policy.document import UNREADABLE
from outbox.ports import GroupReader, PartitionOffsets, RecordSeen, TopicAbout

ANSWER_SECONDS: Final = 10.0
METADATA_SECONDS: Final = 2.0
NEWEST_SECONDS: Final = 10.0
AGES_SECONDS: Final = 2.0  # for the ages of all partitions: a page that shows the rest is worth more than one of them
POLL_SECONDS: Final = 0.2
FETCH_BYTES: Final = 65_536  # of one partition at once; one record at least, whatever its size
_PROTOCOLS: Final = "group.coordinator.rebalance.protocols"
T = TypeVar("T")


class KafkaOffsets:
    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self.topic, self.group = settings.topic, settings.group
        self._client: Consumer | None = None
        self._refused: KafkaError | None = None

    def resting(self, open_events: Mapping[int, int]) -> Mapping[int, str]:
        waiting = OpenRows(self._settings.max_open_events)
        waiting.counted(open_events)
        return waiting.reasons()

    def read(self) -> Sequence[PartitionOffsets]:
        """Every partition of the topic. Raises StreamDown."""
        places = [TopicPartition(self.topic, number) for number in self._asked(self._numbers)]
        client = self._consumer()
        try:
            committed = self._asked(
                lambda: coordinated(lambda left: client.committed(places, timeout=left), ANSWER_SECONDS)
            )
        except StreamDown as error:
            if code_of(error.__cause__) == KafkaError._TIMED_OUT:
                self.readers()  # to the client, a group that this user may not see is one that is silent
            raise
        return [self._asked(partial(self._partition, place)) for place in committed]

    def ages(self, places: Sequence[PartitionOffsets]) -> Mapping[int, float]:
        """By the clock of this machine: for people to read, and nothing is decided by it."""
        starts = {each.partition: each.next for each in places if each.lag and not each.is_gone}
        found = self._asked(lambda: self._records(starts, 1, AGES_SECONDS))
        return {each.partition(): age for each in found if (age := _age(each)) is not None}

    def about(self) -> TopicAbout:
        found = self._described(ConfigResource(ResourceType.TOPIC, self.topic))
        milliseconds = float(found["retention.ms"].value)
        known = self._asked(self._metadata)
        partitions = known.topics[self.topic].partitions.values()
        return TopicAbout(
            retention_seconds=None if milliseconds < 0 else milliseconds / 1000,
            is_compacted="compact" in str(found["cleanup.policy"].value),
            brokers=len(known.brokers),
            copies=min((len(each.replicas) for each in partitions), default=1),
            confirmed=int(found["min.insync.replicas"].value),
        )

    def lacks_protocol(self) -> bool:
        """Brokers before 4.0 have no such configuration."""
        broker = next(iter(self._asked(self._metadata).brokers))
        shared = self._described(ConfigResource(ResourceType.BROKER, str(broker))).get(_PROTOCOLS)
        known = str(shared.value).split(",") if shared is not None else ["classic"]
        return self._settings.group_protocol not in map(str.strip, known)

    def newest(self, most: int) -> Sequence[RecordSeen]:
        starts = {each.partition: max(each.oldest, each.end - most) for each in self.read() if each.end > each.oldest}
        found = self._asked(lambda: self._records(starts, most, NEWEST_SECONDS))
        return [_seen(each, self._settings.record_form) for each in found if not is_tombstone(each)]

    def readers(self) -> Sequence[GroupReader]:
        """Ask after `read`, which waits for a coordinator that is still loading."""
        admin = AdminClient(options(self._settings, client="offsets"))
        answer = admin.describe_consumer_groups([self.group], request_timeout=ANSWER_SECONDS)[self.group]
        try:
            found = self._asked(lambda: answer.result(ANSWER_SECONDS + 1))
        except StreamDown as error:
            if code_of(error.__cause__) == KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        return [_reader(each, self.topic) for each in found.members]

    def _described(self, resource: ConfigResource) -> Mapping[str, Any]:
        admin = AdminClient(options(self._settings, client="offsets"))
        answer = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
        found: Mapping[str, Any] = self._asked(lambda: answer.result(ANSWER_SECONDS + 1))
        return found

    def _partition(self, place: TopicPartition) -> PartitionOffsets:
        if place.error is not None:
            raise StreamDown(f"partition {place.partition}: {words(place.error)}")
        low, high = self._consumer().get_watermark_offsets(place, timeout=ANSWER_SECONDS)
        return PartitionOffsets(place.partition, low, high, None if place.offset == OFFSET_INVALID else place.offset)

    def _records(self, starts: Mapping[int, int], most: int, seconds: float) -> list[Any]:
        """So many records of each partition from an offset on, at most. What does not come in time is left out."""
        client, until = self._consumer(), time.monotonic() + seconds
        wanted = dict.fromkeys(starts, most)
        found: list[Any] = []
        if starts:
            client.assign([TopicPartition(self.topic, number, offset) for number, offset in starts.items()])
        try:
            while wanted and time.monotonic() < until:
                for message in client.consume(100, POLL_SECONDS):
                    number = message.partition() or 0
                    if message.error() is not None:  # its end, or an offset that has gone meanwhile
                        wanted.pop(number, None)
                    elif number in wanted:
                        found.append(message)
                        wanted[number] -= 1
                        if not wanted[number]:
                            del wanted[number]
        finally:
            client.unassign()
        return found

    def _numbers(self) -> list[int]:
        found = self._metadata().topics[self.topic]
        if found.error is not None:
            raise StreamDown(f"topic {self.topic}: {words(found.error)}")
        return sorted(found.partitions)

    def _metadata(self) -> Any:
        """In short steps: a client that is refused would be silent for as long as one that waits for a broker."""
        client, until = self._consumer(), time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return client.list_topics(self.topic, METADATA_SECONDS)
            except KafkaException:
                client.poll(0)
                if self._refused is not None or time.monotonic() >= until:
                    raise

    def _consumer(self) -> Consumer:
        """Made when it is first asked. It subscribes to nothing, so it is no member. `list_consumer_group_offsets` of
        the administrators' client says the same, but ended the process while a coordinator was loading (2.16)."""
        if self._client is None:
            plain = options(self._settings, client="offsets")
            reading = {
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "max.partition.fetch.bytes": FETCH_BYTES,
                "queued.max.messages.kbytes": FETCH_BYTES // 1024,
                "receive.message.max.bytes": LARGEST_RESPONSE_BYTES,
            }
            self._client = Consumer(plain | reading | {"error_cb": self._hear})
        return self._client

    def _hear(self, error: KafkaError) -> None:
        if error.code() in REFUSALS:
            self._refused = error

    def _asked(self, ask: Callable[[], T]) -> T:
        self._refused = None
        try:
            return ask()
        except KafkaException as error:
            if self._client is not None:
                self._client.poll(0)  # what it met meanwhile: a refused login looks like a broker that is down
            raise StreamDown(words(self._refused or error)) from error
        except TimeoutError:
            raise StreamDown("no answer in time") from None


def _reader(member: Any, topic: str) -> GroupReader:
    places = member.assignment.topic_partitions if member.assignment else ()
    numbers = sorted(each.partition for each in places if each.topic == topic)
    return GroupReader(member.client_id, member.host.lstrip("/"), tuple(numbers))


def _seen(message: Any, form: str) -> RecordSeen:
    event, _, _, database = read(message, 0.0, routed=form == "router")
    key = message.key() or b""
    return RecordSeen(
        message.partition(),
        message.offset(),
        key.decode(errors="replace"),
        event.entity_type,
        event.event_version,
        event.op.removeprefix(UNREADABLE) if event.op.startswith(UNREADABLE) else "",
        (database or "")[:200],
    )


def _age(message: Any) -> float | None:
    """By the time that its producer or its broker gave it."""
    kind, milliseconds = message.timestamp()
    return max(time.time() - milliseconds / 1000, 0.0) if kind else None
