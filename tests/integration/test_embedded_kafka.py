"""An embedded Kafka: records and offsets that survive its end in every way, its files, and a cluster of three."""

from collections.abc import Iterator

import psutil
import pytest

from outbox.embedded import EmbeddedKafka
from outbox.embedded.server_account import Account
from tests.fixtures.kafka import KafkaDesk, Sent


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka.temporary() as running:
        yield running


def values(desk: KafkaDesk, topic: str) -> list[bytes | None]:
    return [message.value() for message in desk.read(topic)]


@pytest.mark.release("restarts of a broker of its own; embedded servers are for trials and tests")
def test_records_offsets_and_port_survive_a_restart_and_a_crash(broker: EmbeddedKafka) -> None:
    port, desk = broker.port, KafkaDesk(broker.url)
    desk.create_topic("kept", 1)
    desk.produce("kept", [Sent(b"k", b"before", partition=0)])
    desk.commit("readers", "kept", {0: 1})
    broker.restart()
    desk.produce("kept", [Sent(b"k", b"after a restart", partition=0)])
    broker.kill()
    assert not broker.running
    broker.start()
    assert broker.port == port
    desk = KafkaDesk(broker.url)  # a client whose connections broke may wait for a minute
    assert values(desk, "kept") == [b"before", b"after a restart"]
    assert desk.committed("readers", "kept") == {0: 1}


def test_it_listens_on_loopback_only_and_never_as_root(broker: EmbeddedKafka) -> None:
    assert broker._process is not None
    (java,) = broker._process.processes()
    assert java.uids().effective == Account.for_servers().uid != 0 or not Account.for_servers().is_caller
    listening = [c.laddr.ip for c in java.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert len(listening) == 2  # for clients, and the controller
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
