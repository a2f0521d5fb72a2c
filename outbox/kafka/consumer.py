"""Reads the topic as a member of the group, in one thread: fills the partitions, commits what may be committed, says
what was assigned, revoked or is gone. Decides nothing about a record.

It polls on whatever happens: while a target is paused and while PostgreSQL is down. When enough waits it stops reading,
for longer than a moment by a pause of its partitions.

No call of the client may hold this thread without a limit: meanwhile nothing is read, and `/healthz` fails. So offsets
are asked for with one deadline, commits are never waited for, and a consumer that met an error is left: what it calls
back later is ignored, and another one joins.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from outbox.config import KafkaSettings
from outbox.errors import OutboxError, StreamDown
from outbox.facts import (
    Announce,
    Beat,
    CommitRefused,
    PartitionsAssigned,
    PartitionsRevoked,
    StreamFault,
    StreamGap,
    StreamSampled,
    StreamSeen,
    Warned,
)
from outbox.kafka.begun import Begun, begun_before, progress, topic_of
from outbox.kafka.connection import ASK_SECONDS, REFUSALS, coordinated, words
from outbox.kafka.membership import Handlers, Membership, beside
from outbox.kafka.partitions import Partition, Partitions, Start, start_of
from outbox.kafka.topic_id import TopicId
from outbox.policy.backoff import Backoff
from outbox.ports import Clock

READ_AT_ONCE: Final = 1_000  # records per poll
POLL_SECONDS: Final = 0.05
FULL_SECONDS: Final = 1.0  # before a pause: resuming makes librdkafka fetch anew what it had
COMMIT_SECONDS: Final = 0.1  # between commits: a worker that dies has so much sent again, and its batches in flight
SAMPLE_SECONDS: Final = 2.0
# For batches in flight, when partitions are asked for: less is sent again. While the index hangs, all of it is added to
# a takeover, which should end within the session and 5 s: with 5.0 a storm had some of 11.7 s after a session of 6.
REVOKE_SECONDS: Final = 3.0
NOTE_SECONDS: Final = 2.0  # for PostgreSQL, which may be down
FAULT_SECONDS: Final = 5.0  # between facts of one kind
DOUBTS: Final = 2  # answers after an error before a broker counts as back: so many flip /readyz
PROBE_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 5.0  # for leaving the group, which takes 0.1 s while its coordinator answers
MOST_CLOSING: Final = 4  # consumers that were left and are still there, each with its threads and what it had read
# Before another consumer joins after an error. Short: a takeover is promised within the session timeout and 5 s.
RETRY: Final = Backoff(base_seconds=0.5, cap_seconds=3.0)
GONE: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


@dataclass(eq=False)
class StreamReader:
    """One consumer of one worker. `may_commit`: False while it is not known whether what was written counts.
    `read_before`: notes the topic's id, and says under which other one this group has read it before; it may wait."""

    settings: KafkaSettings
    partitions: Partitions
    announce: Announce
    clock: Clock
    client: str
    wall_clock: Callable[[], float]
    wake: Callable[[], None]
    may_commit: Callable[[], bool] = lambda: True
    read_before: Callable[[str], str | None] = lambda topic_id: None

    def __post_init__(self) -> None:
        self._topic = TopicId(self.settings, client=self.client)
        self._anew = False  # what is read now is of a topic that was made anew
        self._incremental = self.settings.group_protocol == "consumer"
        self._next_commit = self._next_sample = 0.0
        self._full_since: float | None = None
        self._paused: list[int] = []
        self._rewind = threading.Event()
        self._next_fault: dict[int, float] = {}
        self._doubts = 0
        self._gone: set[int] = set()
        self._known_gaps: dict[int, Start] = {}
        self._begun: dict[int, Begun] = {}
        self._closing: list[Future[None]] = []
        self._errors = 0  # one after another, without an assignment between them

    def run(self, stop: threading.Event) -> None:
        """Until stopped. An error of Kafka ends a consumer, and another one joins the group."""
        while self._await_room(stop):
            try:
                self._join(stop)
            except (KafkaException, StreamDown, TimeoutError) as error:
                self.announce(StreamFault(words(error) if isinstance(error, KafkaException) else str(error)))
                self._errors += 1
                stop.wait(RETRY.ceiling(self._errors))

    def _await_room(self, stop: threading.Event) -> bool:
        """Before another consumer is made. It gives no beat: where so many cannot be closed, only a restart helps."""
        while not stop.is_set():
            self._closing = [each for each in self._closing if not each.done()]
            if len(self._closing) < MOST_CLOSING:
                return True
            stop.wait(POLL_SECONDS)
        return False

    def _join(self, stop: threading.Event) -> None:
        self.announce(Beat("stream"))
        handlers = Handlers(self._assigned, self._revoked, self._lost, self._on_commit, self._fault)
        membership = Membership(self.settings, handlers, client=self.client)
        try:
            while not stop.is_set() and not self._must_join_anew():
                self._round(membership)
        finally:
            self._leave(membership)

    def rewind(self) -> None:
        """Read everything again that is not committed: what was written meanwhile may be in one index only."""
        self._rewind.set()

    def _round(self, membership: Membership) -> None:
        self.announce(Beat("stream"))
        consumer = membership.consumer
        if self._rewind.is_set():
            self._rewind.clear()
            self._begin_again(consumer)
        if self._may_read(consumer):
            messages = _read(consumer)
            membership.check()
            if not self._anew:
                self._take_in(messages)
        now = self.clock()
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_SECONDS
            self._commit(consumer)
        if now >= self._next_sample:
            self._next_sample = now + SAMPLE_SECONDS
            self._sample(consumer)

    # Reading

    def _may_read(self, consumer: Consumer) -> bool:
        """A short wait for space needs no pause; a long one does, because polling must go on."""
        if not self.partitions.is_full():
            self._resume(consumer)
            return True
        if self._paused:
            return True
        if self.partitions.wait_for_space(POLL_SECONDS):
            self._full_since = None
            return True
        now = self.clock()
        self._full_since = self._full_since or now
        if now - self._full_since >= FULL_SECONDS:
            self._paused = self.partitions.numbers()
            consumer.pause(self._named(self._paused))
        return bool(self._paused)

    def _resume(self, consumer: Consumer) -> None:
        self._full_since = None
        self._end_pause(consumer, self.partitions.numbers())

    def _end_pause(self, consumer: Consumer, numbers: Sequence[int]) -> None:
        """Of those, before they go too: the client keeps a pause, and it would hold when they come back."""
        paused = [number for number in self._paused if number in numbers]
        self._paused = [number for number in self._paused if number not in numbers]
        if paused:
            consumer.resume(self._named(paused))

    def _take_in(self, messages: Sequence[Any]) -> None:
        good = [message for message in messages if message.error() is None]
        if good:
            self.announce(StreamSeen())
            if self.partitions.arrive(good):
                self.wake()
        for message in messages if len(good) != len(messages) else ():
            if (error := message.error()) is not None:
                self._not_read(message, error)

    def _not_read(self, message: Any, error: KafkaError) -> None:
        """An offset that is gone ends the reading of its partition; librdkafka takes no other offset for it then."""
        if error.code() == KafkaError._PARTITION_EOF:
            self.announce(StreamSeen())
            self.partitions.at_end(message.partition(), message.offset())
        elif error.code() in GONE:
            self._gone.add(message.partition())
        elif error.code() != KafkaError._TIMED_OUT:
            self._fault(error)

    def _must_join_anew(self) -> bool:
        """Where an offset is gone, as soon as what was read before it is settled: it can be read nowhere else any more.
        The next assignment finds the gap and says so. Likewise where the topic was made anew."""
        waiting = [p.number for p in self.partitions.all() if p.waiting or p.in_flight]
        return bool(self._gone) and not self._gone.intersection(waiting)

    # Assignment

    def _assigned(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        self._resume(consumer)
        until = self.clock() + ASK_SECONDS  # for all of them: a callback that takes minutes is a hang
        named = self._named(each.partition for each in given)
        former = self._former(self._topic.known, self._topic.learn(until - self.clock())) if named else ""
        left = until - self.clock()
        found = coordinated(lambda left: consumer.committed(named, timeout=left), left) if named else []
        starts = [self._start(consumer, each, until, former) for each in found]
        if self._incremental:
            consumer.incremental_assign(starts)
        else:
            consumer.assign(starts)
        self._mark(consumer, [each.partition for each in given], ended=False)
        self._errors = 0
        self.announce(PartitionsAssigned(self.settings.topic, sorted(each.partition for each in given)))

    def _former(self, known: str, now: str) -> str:
        """Under which id this worker, or its group, has read the topic before, where that is another one: what nobody
        had read of it is lost. Kafka deletes a group's offsets with their topic, so PostgreSQL remembers it too."""
        try:
            before = beside(lambda: self.read_before(now)).result(NOTE_SECONDS)
        except (TimeoutError, OutboxError):
            before = None  # it is asked again at the next assignment
        former = known or before or ""
        if former in ("", now):
            return ""
        message = f"the topic was made anew (its id was {former}, and is {now}): all of it is read"
        self.announce(Warned("stream.topic_anew", message, {"topic": self.settings.topic}))
        return former

    def _start(self, consumer: Consumer, found: TopicPartition, until: float, former: str) -> TopicPartition:
        if found.error is not None:
            raise KafkaException(found.error)
        low, high = consumer.get_watermark_offsets(found, timeout=max(until - self.clock(), POLL_SECONDS))
        committed = None if found.offset == OFFSET_INVALID else found.offset
        read_as = topic_of(found.metadata) if committed is not None else former
        start = start_of(committed, low, high, anew=read_as not in ("", self._topic.known))
        # Once: until the first commit behind it, every assignment finds it again.
        if start.expected is not None and self._known_gaps.get(found.partition) != start:
            self._known_gaps[found.partition] = start
            self.announce(StreamGap(found.topic, found.partition, start.expected, start.offset))
        suspect = self._begin(found, start, high)
        self.partitions.assign(found.topic, found.partition, start, high, suspect=suspect)
        return TopicPartition(found.topic, found.partition, start.offset)

    def _begin(self, found: TopicPartition, start: Start, high: int) -> bool:
        """True: who began here before did not come back, again and again."""
        self._begun.pop(found.partition, None)
        if high <= start.offset or start.expected is not None:
            return False
        begun = self._begun[found.partition] = Begun(start.offset, begun_before(found.metadata))
        if begun.is_suspect:
            message = (
                f"{begun.before} workers ended at offset {begun.offset} of partition {found.partition}: its first batch"
                " becomes rows, which are tried apart"
            )
            self.announce(Warned("stream.suspects", message, {"partition": found.partition, "offset": begun.offset}))
        return begun.is_suspect

    def _mark(self, consumer: Consumer, numbers: Sequence[int], *, ended: bool) -> None:
        """That these are begun; or, at a clean end without progress, that they are not. Their offset stays as it is."""
        topic, known = self.settings.topic, self._topic.known
        begun = {number: self._begun[number] for number in numbers if number in self._begun}
        if begun:
            marked = [TopicPartition(topic, n, at.offset, at.mark(known, ended=ended)) for n, at in begun.items()]
            self._send(consumer, marked)

    def _mark_ended(self, consumer: Consumer, numbers: Sequence[int]) -> None:
        settled = {partition.number: partition.settled() for partition in self.partitions.all()}
        begun = {number: self._begun[number].offset for number in numbers if number in self._begun}
        self._mark(consumer, [n for n, offset in begun.items() if settled.get(n, offset) <= offset], ended=True)

    def _revoked(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """Asked for by the group, so there is a moment for what is in flight. What ends later is fenced."""
        numbers = [each.partition for each in given]
        self.partitions.wait_until_settled(numbers, REVOKE_SECONDS)
        self._commit(consumer)  # on its way before the partitions are: the client gives them up after its answer
        self._mark_ended(consumer, numbers)
        self._give_up(consumer, given, lost=False)

    def _lost(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        """The group thought this worker dead: others have these already, so nothing is committed."""
        self._give_up(consumer, given, lost=True)

    def _give_up(self, consumer: Consumer, given: list[TopicPartition], *, lost: bool) -> None:
        numbers = [each.partition for each in given]
        self._forget(numbers, lost=lost)
        self._end_pause(consumer, numbers)
        if self._incremental:
            consumer.incremental_unassign(given)
        else:
            consumer.unassign()

    def _forget(self, numbers: Sequence[int], *, lost: bool) -> None:
        in_flight = self.partitions.revoke(numbers)
        if numbers:
            self.announce(PartitionsRevoked(self.settings.topic, sorted(numbers), in_flight, lost))

    def _begin_again(self, consumer: Consumer) -> None:
        """Each partition anew, from what is committed: what is in flight is fenced as if it had been revoked."""
        places = [TopicPartition(old.topic, old.number, old.committed) for old in self.partitions.all()]
        for old in self.partitions.all():
            self.partitions.revoke([old.number])
            self.partitions.assign(old.topic, old.number, Start(old.committed), old.high)
        # All are fenced first: an error here leaves the consumer, which commits what may be.
        beside(lambda: deque(map(consumer.seek, places), 0)).result(ASK_SECONDS)

    # Commits

    def _commit(self, consumer: Consumer) -> None:
        """Never waited for: without a coordinator an answer took 14 s, and from a frozen one 60."""
        # In this order: who is heard again after a change has asked for the rewind before.
        if not self.may_commit() or self._rewind.is_set():
            return
        offsets = self.partitions.commits()
        if not offsets:
            return
        topic, mark = self.settings.topic, progress(self._topic.known)
        self._send(consumer, [TopicPartition(topic, number, offset, mark) for number, offset in offsets.items()])

    def _send(self, consumer: Consumer, named: list[TopicPartition]) -> None:
        try:
            consumer.commit(offsets=named, asynchronous=True)
        except KafkaException as error:
            self._on_commit(error.args[0], named)

    def _on_commit(self, error: KafkaError | None, given: list[TopicPartition]) -> None:
        """A refusal is a lost lease: the group has another owner. Nothing is lost by it, it is read again."""
        bad = [each for each in given if each.error is not None or error is not None]
        good = {each.partition: each.offset for each in given if each.error is None and error is None}
        self.partitions.committed(good)
        if bad:
            self.partitions.not_committed(each.partition for each in bad)
            why = error or bad[0].error
            offsets = {each.partition: each.offset for each in bad}
            self.announce(CommitRefused(self.settings.topic, offsets, words(why) if why else "unknown"))

    def _leave(self, membership: Membership) -> None:
        """Commits what lanes have finished, and leaves the group, so that others need not wait for the session. What
        is asked for here is all answered or stored, so it may arrive late: the group refuses it, or it is true."""
        self._gone.clear()
        self._anew = False
        try:
            self._commit(membership.consumer)
            self._mark_ended(membership.consumer, self.partitions.numbers())
        finally:
            self._forget(self.partitions.numbers(), lost=False)
            left = membership.leave()
            if not wait([left], CLOSE_SECONDS).done:
                self._closing.append(left)
                self.announce(StreamFault(f"the group did not confirm within {CLOSE_SECONDS:g} s that we left it"))

    # What is announced

    def _sample(self, consumer: Consumer) -> None:
        if not self._anew and self._topic.has_changed():
            self._anew = True
            self._gone.update(self.partitions.numbers())
        elif (error := self._topic.error) and error.code() in REFUSALS and not self.partitions.all():
            self._fault(error)  # the group protocol `consumer` says nothing of it to its members
        lag: dict[int, int] = {}
        oldest: dict[int, float] = {}
        partitions = self.partitions.all()
        for partition in partitions:
            _, high = consumer.get_watermark_offsets(self._named([partition.number])[0], cached=True)
            partition.high = max(partition.high, high)
            lag[partition.number] = max(partition.high - partition.settled(), 0)
            oldest[partition.number] = self._age(partition) if lag[partition.number] else 0.0
        resting = {partition.number: partition.held for partition in partitions if partition.held}
        self.announce(StreamSampled(self.settings.topic, lag, oldest, resting, self.partitions.take_empty()))
        if self._doubts and partitions:
            self._probe(consumer, partitions[0])

    def _probe(self, consumer: Consumer, partition: Partition) -> None:
        """After an error. An idle topic gives no record by which a broker that is back could be known."""
        try:
            consumer.get_watermark_offsets(self._named([partition.number])[0], timeout=PROBE_SECONDS)
        except KafkaException as error:
            self._doubts = DOUBTS
            self.announce(StreamFault(words(error)))
        else:
            self._doubts -= 1
            self.announce(StreamSeen())

    def _age(self, partition: Partition) -> float:
        """Of the oldest record that is not settled, by the time that its producer or its broker gave it."""
        first: Any = partition.oldest()
        kind, milliseconds = first.timestamp() if first is not None else (0, 0)
        return max(self.wall_clock() - milliseconds / 1000, 0.0) if kind else 0.0

    def _fault(self, error: KafkaError) -> None:
        """librdkafka tries again by itself; a fatal error ends this consumer, and another one begins."""
        now = self.clock()
        if now >= self._next_fault.get(error.code(), 0.0):
            self._next_fault[error.code()] = now + FAULT_SECONDS
            self._doubts = DOUBTS
            self.announce(StreamFault(words(error)))
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise KafkaException(error)

    def _named(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self.settings.topic, number) for number in numbers]


def _read(consumer: Consumer) -> list[Any]:
    """What is there, as soon as one record is: a call for many would wait for all of them until its time is over."""
    first = consumer.consume(1, POLL_SECONDS)
    return first + consumer.consume(READ_AT_ONCE - 1, 0.0) if first else first
