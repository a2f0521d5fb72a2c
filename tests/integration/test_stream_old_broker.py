"""Brokers without the new group protocol: the error names the setting, and with it they are read."""

from collections.abc import Iterator

import pytest

from outbox.embedded import EmbeddedKafka
from outbox.facts import PartitionsAssigned, StreamFault
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.servers import KAFKA_SETTINGS, in_memory
from tests.fixtures.waiting import eventually
from tests.integration.test_stream import Ground

CLASSIC_ONLY = {**KAFKA_SETTINGS, "group.coordinator.rebalance.protocols": "classic"}


@pytest.fixture(scope="module")
def old_broker() -> Iterator[KafkaDesk]:
    with EmbeddedKafka.temporary(in_memory(), settings=CLASSIC_ONLY) as broker:
        yield KafkaDesk(broker.url)


def test_a_broker_without_the_new_group_protocol_is_answered_with_the_setting(old_broker: KafkaDesk) -> None:
    ground = Ground(old_broker, old_broker.create_topic("events", 1))
    ground.fill(5)
    with ground.member() as member:
        eventually(lambda: len(member.of(StreamFault)) > 1, what="it is said again by the next consumer")
        assert all("set KAFKA_GROUP_PROTOCOL=classic" in fault.error for fault in member.of(StreamFault))
        assert member.of(PartitionsAssigned) == []
        assert member.errors == []
    with ground.member(group_protocol="classic") as member:
        ground.finish(member)
    assert len(ground.ids()) == 5
