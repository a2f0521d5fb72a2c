"""Holds what was read of each assigned partition until a lane takes it, and takes back what stays. Knows no Kafka call.

A partition is in one lane at a time, so records of one entity are sent in their order. What stays goes back to the
front of its partition, from memory: nothing is read twice while the assignment lasts. The reader stops when
`most_bytes` wait.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from outbox.kafka.ledger import OffsetLedger
from outbox.kafka.record import Message
from outbox.ports import Clock

EMPTY_BYTES: Final = 500  # what a record without a value weighs, headers and all
SPAN_BATCHES: Final = 4  # of records above the first open one: so much may be sent again by the next owner
REST_SECONDS: Final = 2.0  # of a partition whose exception could not be stored; doubles
LONGEST_REST_SECONDS: Final = 30.0


class Start(NamedTuple):
    """Where a partition begins. `expected`, where that is not what is read: the records between are gone."""

    offset: int
    expected: int | None = None


def start_of(committed: int | None, low: int, high: int, *, anew: bool = False) -> Start:
    """By what the group has committed and what the broker still has. The cases:

    nothing committed   a new group: from the oldest record
    below the oldest    a gap: records were removed before anyone read them
    above the newest    a gap: the topic was made anew, or lost its end; all that is there is read again
    made anew           a gap, whatever is committed: the offset is another topic's, or was deleted with that
    """
    if anew:
        return Start(low, committed or 0)
    if committed is None:
        return Start(low)
    if committed < low or committed > high:
        return Start(low, committed)
    return Start(committed)


@dataclass(slots=True, eq=False)
class Partition:
    """One assignment of one partition. It ends with `revoked`: then nothing of it is closed or committed any more."""

    topic: str
    number: int
    ledger: OffsetLedger
    again_below: int  # up to here a former owner may have sent records already
    committed: int  # as the broker has confirmed it
    asked: int | None = None  # what the commit on its way says
    waiting: deque[Message] = field(default_factory=deque)
    back: int = 0  # of these, the first so many were handed out before
    waiting_bytes: int = 0
    arrived: int = -1  # the last offset that was read, or that need not be
    in_flight: Sequence[Message] = ()
    turn: int = 0  # when it was taken last, in turns
    rest_until: float = 0.0
    rests: int = 0
    revoked: bool = False
    high: int = 0
    suspect: bool = False  # who had it before ended with it, again and again: its first batch is stored, not sent
    held: str = ""  # why nothing of it is handed out, until that is over
    again: dict[int, int] = field(default_factory=dict)  # how often a refused record was sent again, by its offset
    end: int = 0  # the broker has said that there is nothing below it that was not read

    def settled(self) -> int:
        """Up to where everything is answered or stored. Where all that was read is, markers behind it count too."""
        offset = self.ledger.committable()
        return offset if self.ledger.open or self.waiting else max(offset, self.end)

    def commit(self) -> int | None:
        """What is to be committed now, where that is more than was asked for."""
        offset = self.settled()
        return offset if offset > max(self.committed, self.asked or 0) else None

    def oldest(self) -> Message | None:
        return self.in_flight[0] if self.in_flight else self.waiting[0] if self.waiting else None


class Handed(NamedTuple):
    """A part of a batch: records of one partition, and how many of them, from the first, were handed out before."""

    partition: Partition
    messages: Sequence[Message]
    back: int


def size_of(message: Message) -> int:
    return len(message.value() or b"") + EMPTY_BYTES


class Partitions:
    """All partitions of one consumer. Lanes and the reader share it."""

    def __init__(self, clock: Clock, *, most_bytes: int, batch_size: int) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
        self._span = SPAN_BATCHES * batch_size
        self._of: dict[int, Partition] = {}
        self._turn = 0
        self._bytes = 0
        self._empty = 0
        self._changed = threading.Condition()

    # The reader

    def assign(self, topic: str, number: int, start: Start, high: int, *, suspect: bool = False) -> None:
        with self._changed:
            first, ledger = start.offset, OffsetLedger(start.offset)
            self._of[number] = Partition(
                topic, number, ledger, first + self._span, first, arrived=first - 1, high=high, suspect=suspect
            )

    def revoke(self, numbers: Iterable[int]) -> int:
        """Answers how many records were in flight: they are the next owner's now."""
        lost = 0
        with self._changed:
            for number in numbers:
                partition = self._of.pop(number, None)
                if partition is not None:
                    partition.revoked = True
                    lost += len(partition.in_flight)
                    self._bytes -= partition.waiting_bytes
                    partition.waiting.clear()
            self._changed.notify_all()
        return lost

    def arrive(self, messages: Iterable[Message]) -> int:
        """What was read, in order. A record that is there already, or of a partition that is not ours, is left out."""
        count, of = 0, self._of
        with self._changed:
            for message in messages:
                partition, offset = of.get(message.partition() or 0), message.offset()
                if partition is None or offset is None or offset <= partition.arrived:
                    continue
                partition.arrived = offset
                partition.waiting.append(message)
                size = len(message.value() or b"") + EMPTY_BYTES
                partition.waiting_bytes += size
                self._bytes += size
                count += 1
        return count

    def at_end(self, number: int, offset: int) -> None:
        """Everything below this offset was read: the broker says so after the records themselves."""
        with self._changed:
            if number in self._of:
                self._of[number].end = offset

    def is_full(self) -> bool:
        return self._bytes >= self._most_bytes

    def wait_for_space(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self.is_full(), seconds)

    def wait_until_settled(self, numbers: Iterable[int], seconds: float) -> bool:
        """Of partitions that are about to go: nothing more is handed out, and what is in flight gets a while."""
        with self._changed:
            going = [self._of[number] for number in numbers if number in self._of]
            for partition in going:
                partition.rest_until = float("inf")
            return self._changed.wait_for(lambda: not any(p.in_flight for p in going), seconds)

    def commits(self) -> dict[int, int]:
        """What may be committed and was not yet, by partition. It counts as asked for from now on."""
        with self._changed:
            found = {number: offset for number, p in self._of.items() if (offset := p.commit()) is not None}
            for number, offset in found.items():
                self._of[number].asked = offset
        return found

    def committed(self, offsets: Mapping[int, int]) -> None:
        with self._changed:
            for number, offset in offsets.items():
                if number in self._of and self._of[number].asked == offset:
                    self._of[number].committed, self._of[number].asked = offset, None

    def not_committed(self, numbers: Iterable[int]) -> None:
        """Asked again at the next turn, if they are still ours then."""
        with self._changed:
            for number in numbers:
                if number in self._of:
                    self._of[number].asked = None

    def all(self) -> list[Partition]:
        with self._changed:
            return list(self._of.values())

    def numbers(self) -> list[int]:
        return [partition.number for partition in self.all()]

    def take_empty(self) -> int:
        """How many records without value and headers have passed since the last call."""
        with self._changed:
            found, self._empty = self._empty, 0
            return found

    # The lanes

    def take(self, limit: int, most_bytes: int) -> list[Handed]:
        """Up to so many records, of partitions that are in no lane and do not rest. The one that was taken longest ago
        comes first: one that falls behind would be left to a single lane at the end. What was handed out before comes
        alone: it may need PostgreSQL, and others of its batch would wait for that with it."""
        with self._changed:
            now = self._clock()
            taken: list[Handed] = []
            free = [p for p in self._of.values() if p.waiting and not (p.in_flight or p.held) and now >= p.rest_until]
            for partition in sorted(free, key=lambda each: each.turn):
                alone = bool(partition.back or partition.rests)
                if alone and taken:
                    continue
                self._turn += 1
                partition.turn = self._turn
                handed, weight = self._take(partition, limit, most_bytes)
                if handed.messages:
                    taken.append(handed)
                limit -= len(handed.messages)
                most_bytes -= weight
                if limit <= 0 or most_bytes <= 0 or alone:
                    break
            self._changed.notify_all()
        return taken

    def _take(self, partition: Partition, limit: int, most_bytes: int) -> tuple[Handed, int]:
        """One at least: a record that is larger than a batch goes alone."""
        messages: list[Message] = []
        weight, last = 0, partition.ledger.committable() + self._span
        waiting = partition.waiting
        while waiting and len(messages) < limit:
            size = size_of(waiting[0])
            if messages and (weight + size > most_bytes or (waiting[0].offset() or 0) > last):
                break
            weight += size
            messages.append(waiting.popleft())
        back = min(partition.back, len(messages))
        partition.back -= back
        partition.waiting_bytes -= weight
        self._bytes -= weight
        partition.in_flight = messages
        partition.ledger.hand_out(message.offset() or 0 for message in messages[back:])
        return Handed(partition, messages, back), weight

    def close(
        self,
        handed: Handed,
        closed: Iterable[Message],
        stays: Sequence[Message],
        rest_seconds: float,
        *,
        empty: int = 0,
    ) -> bool:
        """What is answered or stored is closed; the rest goes back to the front. False: it was revoked meanwhile.
        `empty`: so many of the closed have neither value nor headers."""
        with self._changed:
            partition = handed.partition
            if partition.revoked:
                return False
            offsets = [message.offset() or 0 for message in closed]
            partition.ledger.close(offsets)
            for offset in offsets if partition.again else ():
                partition.again.pop(offset, None)
            partition.in_flight = ()
            self._empty += empty
            self._put_back(partition, stays)
            if rest_seconds:
                partition.rest_until = max(partition.rest_until, self._clock() + rest_seconds)
            self._changed.notify_all()
            return True

    def give_back_tail(self, handed: Handed, offset: int) -> None:
        """Of what was just taken: the records from this offset on."""
        with self._changed:
            partition = handed.partition
            partition.in_flight = [m for m in handed.messages if (m.offset() or 0) < offset]
            if not partition.revoked:
                self._put_back(partition, handed.messages[len(partition.in_flight) :])

    def _put_back(self, partition: Partition, stays: Sequence[Message]) -> None:
        partition.waiting.extendleft(reversed(stays))
        partition.back += len(stays)
        weight = sum(map(size_of, stays))
        partition.waiting_bytes += weight
        self._bytes += weight

    def hold(self, reasons: Mapping[int, str]) -> None:
        """Of all partitions: those without a reason go on."""
        with self._changed:
            for number, partition in self._of.items():
                partition.held = reasons.get(number, "")

    def rest_for(self, partition: Partition, seconds: float) -> None:
        with self._changed:
            partition.rest_until = max(partition.rest_until, self._clock() + seconds)

    def rest(self, partition: Partition) -> None:
        """Rests a partition that needs PostgreSQL, which is down: longer each time, because each try costs its lane."""
        with self._changed:
            partition.rests += 1
            seconds = min(REST_SECONDS * 2.0 ** (partition.rests - 1), LONGEST_REST_SECONDS)
            partition.rest_until = max(partition.rest_until, self._clock() + seconds)
