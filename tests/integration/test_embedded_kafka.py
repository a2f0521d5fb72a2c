"""An embedded Kafka: records and offsets that survive its end in every way, its files, and a cluster of three."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from outbox.embedded import EmbeddedKafka
from outbox.embedded.account import Account
from outbox.embedded.errors import EmbeddedServerFailed, FolderInUse
from outbox.embedded.process import await_end
from tests.fixtures.kafka import KafkaDesk, Sent
from tests.fixtures.kafka_cluster import EmbeddedKafkaCluster
from tests.fixtures.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka.temporary() as running:
        yield running


def values(desk: KafkaDesk, topic: str) -> list[bytes | None]:
    return [message.value() for message in desk.read(topic)]


def test_records_are_read_as_they_were_written(kafka: KafkaDesk, topic: str) -> None:
    sent = [Sent(b"article:1", b'{"price":1.10}', {"op": b"upsert"}, 2), Sent(b"article:1", None, {}, 2)]
    assert kafka.produce(topic, sent) == [(2, 0), (2, 1)]
    first, second = kafka.read(topic)
    assert (first.key(), first.value(), first.headers()) == (b"article:1", b'{"price":1.10}', [("op", b"upsert")])
    assert (second.value(), second.headers()) == (None, None)


def test_one_key_is_in_one_partition_of_a_topic_of_four(kafka: KafkaDesk, topic: str) -> None:
    places = kafka.produce(topic, [Sent(f"article:{number % 20}".encode(), b"x") for number in range(60)])
    assert len({partition for partition, _ in places}) > 1
    assert [partition for partition, _ in places[:20]] == [partition for partition, _ in places[20:40]]
    assert sum(kafka.ends(topic).values()) == 60


def test_offsets_of_a_group_are_set_and_read(kafka: KafkaDesk, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex}"
    kafka.produce(topic, [Sent(b"k", b"v", partition=1) for _ in range(5)])
    assert kafka.committed(group, topic) == {}
    kafka.commit(group, topic, {1: 3})
    assert kafka.committed(group, topic) == {1: 3}


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


def test_a_folder_in_use_is_refused(broker: EmbeddedKafka) -> None:
    with pytest.raises(FolderInUse, match="OUTBOX_DATA_DIR"):
        EmbeddedKafka(broker.folder).start()


def test_a_broker_that_cannot_start_shows_the_reason(server_folder: Path) -> None:
    with pytest.raises(EmbeddedServerFailed, match=r"num\.network\.threads"):
        EmbeddedKafka(server_folder / "kafka", settings={"num.network.threads": "none"}).start()


@pytest.mark.release("a broker of its own; the supervisor is the same as of PostgreSQL")
def test_it_stops_by_itself_when_its_supervisor_is_gone(server_folder: Path) -> None:
    with EmbeddedKafka(server_folder / "kafka") as running:
        assert running._process is not None
        left = running._process.processes()
        psutil.Process(running._process._popen.pid).kill()
        assert await_end(left, PATIENCE_SECONDS) == []


@pytest.mark.release("three brokers of its own, and Kafka keeps its promise")
@pytest.mark.slow
def test_three_brokers_keep_every_acknowledged_record_when_one_is_killed() -> None:
    with EmbeddedKafkaCluster.temporary() as cluster:
        desk = KafkaDesk(cluster.url)
        desk.create_topic("kept", 3)
        sent = [Sent(f"k{number}".encode(), b"before") for number in range(30)]
        desk.produce("kept", sent, acks="all")
        cluster.brokers[0].kill()
        desk.produce("kept", [Sent(record.key, b"after") for record in sent], acks="all")
        assert sorted(values(desk, "kept"), key=str) == [b"after"] * 30 + [b"before"] * 30
        cluster.brokers[0].start()
        eventually(lambda: len(desk.admin.list_topics(timeout=10).brokers) == 3, what="three brokers")
