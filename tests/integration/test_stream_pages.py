"""Kafka on the console's pages and in its API: topic, group, and what waits in each partition, on a real broker."""

import pytest

from tests.fixtures.console import StartConsole
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.streaming import an_event_record
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.timeout(120)


def test_the_console_shows_topic_group_and_every_partition(
    kafka: KafkaDesk, topic: str, start_console: StartConsole
) -> None:
    kafka.produce(topic, [an_event_record(str(n), 1, partition=1) for n in range(7)])
    console = start_console(
        OUTBOX_SOURCE="kafka", KAFKA_BOOTSTRAP_SERVERS=kafka.url, KAFKA_TOPIC=topic, KAFKA_GROUP="of-this-page"
    )
    eventually(lambda: not console.client.get("/api/v1/ops").json()["stream"]["error"])
    stream = console.client.get("/api/v1/ops").json()["stream"]
    assert (stream["topic"], stream["group"], stream["lag"], stream["error"]) == (topic, "of-this-page", 7, "")
    first, second = stream["partitions"][:2]
    assert (first["lag"], first["oldest_age_seconds"], first["gone"]) == (0, None, False)
    assert (second["lag"], second["end"], second["committed"]) == (7, 7, None)
    assert 0 <= second["oldest_age_seconds"] < 120
    page = console.client.get("/ops/queue/system").text
    assert f"<code>{topic}</code>" in page
    assert "<code>of-this-page</code>" in page
    assert page.count('<th scope="row" class="num">') == len(stream["partitions"])
