"""A group whose coordinator freezes or dies while partitions are assigned: the reader never hangs, and work goes on
soon after a coordinator is back."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from outbox.embedded import EmbeddedKafka
from outbox.facts import Beat, StreamFault
from outbox.kafka import consumer as reading
from outbox.kafka.consumer import StreamReader
from outbox.telemetry.beats import DEFAULT_LIMIT_SECONDS
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.servers import KAFKA_SETTINGS, in_memory
from tests.fixtures.streaming import GroupMember
from tests.fixtures.waiting import eventually
from tests.integration.test_stream import Ground

SESSION_SECONDS = 6.0  # of KAFKA_SETTINGS
TAKEOVER_SECONDS = SESSION_SECONDS + 5
OFFSETS = "__consumer_offsets"


def a_ground(url: str) -> Ground:
    desk = KafkaDesk(url)
    return Ground(desk, desk.create_topic(f"t-{uuid.uuid4().hex[:8]}", 2))


class Strike:
    """Takes the coordinator away in the middle of an assignment, with a commit on its way. Made before the members are:
    a consumer keeps the callbacks that it was made with."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._armed: tuple[GroupMember, Callable[[], None]] | None = None
        self._real = StreamReader._assigned
        self._at: list[tuple[float, int]] = []
        strike = self

        def assigned(reader: StreamReader, consumer: Consumer, given: list[TopicPartition]) -> None:
            if given:
                strike._hit(reader, consumer)
            strike._real(reader, consumer, given)

        patch.setattr(StreamReader, "_assigned", assigned)

    def arm(self, member: GroupMember, hit: Callable[[], None]) -> None:
        """In the member's next assignment."""
        self._at.clear()
        self._armed = member, hit

    def _hit(self, reader: StreamReader, consumer: Consumer) -> None:
        if self._armed is None or self._armed[0].reader is not reader:
            return
        (member, hit), self._armed = self._armed, None
        hit()
        member.commits.set()
        reader._commit(consumer)
        self._at.append((time.monotonic(), len(member.of(Beat))))

    def beats_on(self, member: GroupMember) -> bool:
        """Before `/healthz` fails. That limit is not stretched on a busy machine, so neither is this."""
        ((at, beats),) = eventually(lambda: self._at, what="an assignment that is struck")
        while len(member.of(Beat)) == beats and time.monotonic() < at + DEFAULT_LIMIT_SECONDS:
            time.sleep(0.05)
        return len(member.of(Beat)) > beats


def progress(ground: Ground, member: GroupMember, fact: str) -> None:
    """Everything there is becomes committed in the promised time."""
    ends = {number: end for number, end in ground.desk.ends(ground.topic).items() if end}

    def done() -> bool:
        while member.step():
            pass
        return ground.committed() == ends

    eventually(done, within=TAKEOVER_SECONDS, what=fact)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka.temporary(in_memory(), settings=KAFKA_SETTINGS) as running:
        yield running


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch) -> Strike:
    return Strike(monkeypatch)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ASK_SECONDS", 2.0)
    monkeypatch.setattr(reading, "CLOSE_SECONDS", 1.0)


@pytest.mark.usefixtures("quick")
def test_a_coordinator_that_freezes_in_an_assignment_does_not_stop_the_reader(
    broker: EmbeddedKafka, strike: Strike
) -> None:
    """The client's own close waits 60 s for the answer to a commit: as long as `/healthz` waits for a beat."""
    ground = a_ground(broker.url)
    ground.fill(20, partition=0)
    ground.fill(20, 20, partition=1)
    with ground.member() as member:
        with ground.member():
            eventually(lambda: len(member.partitions.all()) == 1, what="each has one partition")
            member.commits.clear()
            eventually(member.step, what="a batch that is not committed yet")
            strike.arm(member, broker.freeze)
        try:
            assert strike.beats_on(member)
            assert member.of(StreamFault)
        finally:
            broker.thaw()
        progress(ground, member, "all is committed after the coordinator is back")
    assert len(ground.ids()) == 40
    assert member.errors == []
