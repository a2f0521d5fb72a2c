"""An error of the client inside a callback reaches whoever polls as an exception that can be caught."""

import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from outbox.config import KafkaSettings
from outbox.stream import membership
from outbox.stream.membership import Handlers, Membership
from tests.fixtures.waiting import PATIENCE_SECONDS

# A broker inside the client itself, which needs no server.
MOCK = {"test.mock.num.brokers": 1, "bootstrap.servers": "x", "allow.auto.create.topics": True, "log_level": 0}


def opened(settings: KafkaSettings, *, client: str, on_error: Any, on_commit: Any) -> Consumer:
    consumer = Consumer({**MOCK, "group.id": "g", "client.id": client, "error_cb": on_error, "on_commit": on_commit})
    consumer.list_topics(settings.topic, PATIENCE_SECONDS)  # which makes it
    return consumer


def caught(consumer: Consumer) -> list[KafkaException]:
    """In a thread: what is no exception passes every `except`, those of pytest too."""
    until, found = time.monotonic() + PATIENCE_SECONDS, list[KafkaException]()

    def poll() -> None:
        try:
            while time.monotonic() < until:
                consumer.consume(1, 0.1)
        except KafkaException as error:
            found.append(error)

    polling = threading.Thread(target=poll)
    polling.start()
    polling.join()
    return found


def test_an_error_of_the_client_in_a_callback_can_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Python 3.11 the client raised the bare KafkaError, which is no exception: nothing caught it, and the thread
    that reads ended."""
    monkeypatch.setattr(membership, "open_consumer", opened)

    def ask(consumer: Consumer, given: list[TopicPartition]) -> None:
        consumer.get_watermark_offsets(TopicPartition("missing", 77), timeout=1.0)

    nothing: Any = lambda *_: None  # noqa: E731
    joined = Membership(KafkaSettings(topic="t"), Handlers(ask, nothing, nothing, nothing, nothing), client="c")
    try:
        assert len(caught(joined.consumer)) == 1
    finally:
        joined.leave().result(PATIENCE_SECONDS)
