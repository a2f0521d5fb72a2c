"""An embedded Kafka: records and offsets that survive its end in every way, its files, and a cluster of three."""

from collections.abc import Iterator

import psutil
import pytest

from outbox.embedded import EmbeddedKafka
from outbox.embedded.server_account import Account


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka.temporary() as running:
        yield running


def test_it_listens_on_loopback_only_and_never_as_root(broker: EmbeddedKafka) -> None:
    assert broker._process is not None
    (java,) = broker._process.processes()
    assert java.uids().effective == Account.for_servers().uid != 0 or not Account.for_servers().is_caller
    listening = [c.laddr.ip for c in java.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert len(listening) == 2  # for clients, and the controller
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
