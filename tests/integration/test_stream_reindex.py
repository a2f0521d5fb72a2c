"""With Kafka the table has exceptions only: what it does not tell of is neither deleted nor left behind."""

import threading
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from elasticsearch import Elasticsearch

from outbox.config import Settings
from outbox.kafka import settle_wait
from outbox.policy.entity_type import EntityType, KeptBy
from outbox.policy.reindex import Rebuild
from outbox.reindex import comparison
from outbox.reindex.joining import rebuild_copier
from outbox.reindex.rebuild_steps import OutOfSight
from outbox.reindex.verify import Verification, VerifyOptions
from outbox.store.entity_types import PostgresEntityTypes
from outbox.store.schema.migrate import migrate
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.queue import EventTable
from tests.fixtures.streaming import an_event_record
from tests.fixtures.world import World

pytestmark = pytest.mark.usefixtures("quick_second_checks")

KAFKA = {"OUTBOX_SOURCE": "kafka", "KAFKA_BOOTSTRAP_SERVERS": "localhost:9092"}


@pytest.fixture
def world(queue: EventTable, es: Elasticsearch, elastic_url: str, index: str) -> World:
    """Articles are in the view; blocks came with payloads, and one of them failed."""
    world = World(queue, es, elastic_url, index)
    migrate(queue.url, by_entity=True)
    world.fill(5)
    world.project()
    for n in range(5):
        es.index(index=index, id=f"block:{n}", document={"n": n}, version=10 + n, version_type="external")
    PostgresEntityTypes(queue.pool()).declare({"block": EntityType(KeptBy.PAYLOAD)}, "w1")
    queue.produce("1", "delete", entity_type="block", status="done", event_version=3)
    queue.produce("2", entity_type="block", status="failed")
    es.indices.refresh(index=index)
    return world


def test_documents_that_came_through_kafka_are_unknown_and_not_repaired(world: World) -> None:
    found = world.reindexing(**KAFKA).verify.run(VerifyOptions(rate=0))
    assert found.report.drift == 0
    assert found.as_json()["unknown"] == 5
    plan = world.reindexing(**KAFKA).repair.plan(VerifyOptions(rate=0), 100)
    assert plan.findings == []


def a_copy(world: World, settings: Settings) -> Any:
    about = SimpleNamespace(target=world.index, old_index=world.index, new_index="other", started_by="alice")
    return rebuild_copier(settings, world.queue.pool(), world.elastic, cast(Rebuild, about), 0.0)


def test_a_rebuild_of_an_index_with_a_type_that_payloads_keep_is_refused(world: World) -> None:
    with pytest.raises(OutOfSight, match="block"):
        a_copy(world, world.settings_for(**KAFKA))
    world.connection.execute("delete from search_outbox_entity_types where entity_type = 'block'")
    _, types = a_copy(world, world.settings_for(**KAFKA))
    assert list(types) == ["article"], "what nobody has declared is found before the swap, as what would be lost"


@dataclass
class OnItsWay:
    """An article that is changed in PostgreSQL; its event is in the topic, and nobody has settled it yet."""

    world: World
    kafka: KafkaDesk
    topic: str
    group: str
    place: tuple[int, int]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "OUTBOX_SOURCE": "kafka",
            "KAFKA_BOOTSTRAP_SERVERS": self.kafka.url,
            "KAFKA_TOPIC": self.topic,
            "KAFKA_GROUP": self.group,
        }

    def verify(self) -> Verification:
        return self.world.reindexing(**self.environment).verify.run(VerifyOptions(entity_type="article", rate=0))

    def settle(self, *, written: bool = True) -> None:
        """As a worker would."""
        if written:
            new = {"title": "new", "n": 1}
            self.world.es.index(
                index=self.world.index, id="article:1", document=new, version=10**6, version_type="external"
            )
        partition, offset = self.place
        self.kafka.commit(self.group, self.topic, {partition: offset + 1})


@pytest.fixture
def on_its_way(world: World, kafka: KafkaDesk, topic: str, monkeypatch: pytest.MonkeyPatch) -> OnItsWay:
    monkeypatch.setattr(comparison, "STREAM_FIRST_SECONDS", 0.1)
    monkeypatch.setattr(settle_wait, "AGAIN_SECONDS", 0.2)
    world.connection.execute("update articles set title = 'new', version = 9 where id = '1'")
    [place] = kafka.produce(topic, [an_event_record("1", 9, "refresh")])
    return OnItsWay(world, kafka, topic, f"group-{uuid4().hex[:12]}", place)


def test_what_waits_in_the_topic_is_no_drift_and_verify_says_that_nobody_reads_it(
    on_its_way: OnItsWay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle_wait, "PATIENCE_SECONDS", 1.0)
    found = on_its_way.verify()
    assert (found.report.drift, found.report.unjudged, found.report.conclusive) == (0, 1, False)
    assert "records of Kafka were not settled within 1 s" in found.sentence


def test_verify_waits_for_workers_that_get_there(on_its_way: OnItsWay) -> None:
    later = threading.Timer(2.0, on_its_way.settle)
    later.start()
    found = on_its_way.verify()
    later.join()
    assert (found.report.drift, found.report.in_flux) == (0, 0)
    assert found.seconds > 1.5
