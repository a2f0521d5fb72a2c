"""Two projections of one topic on three brokers with TLS, logins and rights, where two of three copies confirm a
record: brokers and workers are killed in turn, a mapping refuses everything, an index is lost and its topic read again
under 429. `OUTBOX_TEST_DRILL_SECONDS` says for how long."""

import json
import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from elasticsearch import ApiError, Elasticsearch, TransportError, helpers

from outbox.embedded import EmbeddedElasticsearch
from outbox.embedded.process import free_port
from outbox.errors import StreamDown
from outbox.store.schema.migrate import migrate
from tests.fixtures.commands import call
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.kafka_cluster import EmbeddedKafkaCluster
from tests.fixtures.postgres import fresh_database
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.secured import Authority
from tests.fixtures.servers import KAFKA_SETTINGS
from tests.fixtures.waiting import eventually

pytestmark = [pytest.mark.long, pytest.mark.slow]
SECONDS = float(os.environ.get("OUTBOX_TEST_DRILL_SECONDS", "120"))
PARTITIONS, ENTITIES, RATE = 6, 3_000, 300
MOST_OPEN, BATCH = 200, 100
CAP = PARTITIONS * (MOST_OPEN + BATCH)  # a partition may be above its limit by one batch
WORKERS = 2
PASSWORD = "canary-of-the-drill"
USERS = ("projector", "writer")
# One thread and a short queue: requests are refused with 429 as soon as a few more come at once.
TINY = {"thread_pool.write.size": 1, "thread_pool.write.queue_size": 8}
FAILED = "select count(*) from search_outbox_events where failed_at is not null"
OPEN = "select count(*) from search_outbox_events where processed_at is null and failed_at is null"
DOWN = (ApiError, TransportError)


def secured_cluster(folder: Path, authority: Authority) -> tuple[EmbeddedKafkaCluster, str]:
    """And the addresses for clients with a login. Without one only the brokers themselves and the test come in."""
    cluster = EmbeddedKafkaCluster(folder)
    files = authority.issue("kafka", "IP:127.0.0.1")
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="x" {users};'
    addresses = []
    for broker in cluster.brokers:
        secure = f"127.0.0.1:{free_port()}"
        addresses.append(secure)
        clients = f"PLAINTEXT://127.0.0.1:{broker.port},SECURE://{secure}"
        broker.settings = {
            **KAFKA_SETTINGS,
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{(broker._voters or {})[broker.node]}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": login,
            "listener.name.secure.ssl.keystore.type": "PEM",
            "listener.name.secure.ssl.keystore.key": " ".join(files.key.read_text().splitlines()),
            "listener.name.secure.ssl.keystore.certificate.chain": " ".join(files.certificate.read_text().splitlines()),
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
        }
    return cluster, ",".join(addresses)


@dataclass(eq=False)
class Writer(threading.Thread):
    """Writes events of a small number of entities, each under a version of its own, and knows which were confirmed."""

    options: dict[str, str]
    topic: str
    newest: dict[str, tuple[int, str]] = field(default_factory=dict)
    confirmed: int = 0
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()

    def run(self) -> None:
        dice, version = random.Random(1), 0
        producer = Producer({**self.options, "acks": "all", "enable.idempotence": True, "log_level": 0})
        began = time.monotonic()
        while not self.stopping.is_set():
            version += 1
            id, op = str(dice.randrange(ENTITIES)), "delete" if dice.random() < 0.15 else "upsert"
            self._write(producer, id, version, op)
            producer.poll(0)
            self.stopping.wait(max(0.0, began + version / RATE - time.monotonic()))
        left = producer.flush(60)
        if left:
            self.refused.append(f"{left} were not confirmed")

    def _write(self, producer: Producer, id: str, version: int, op: str) -> None:
        value = json.dumps({"v": version, "text": "x" * 200}).encode() if op == "upsert" else None
        event = [op, version, "article", id, None, int(time.time() * 1e6), value is not None, None]
        headers: list[tuple[str, str | bytes | None]] = [("id", str(uuid.uuid4())), ("event", json.dumps(event))]

        def confirmed(error: object, _: object) -> None:
            if error is not None:
                self.refused.append(str(error))
            else:
                self.confirmed += 1
                self.newest[id] = max(self.newest.get(id, (0, "")), (version, op))

        producer.produce(self.topic, value, f"article:{id}".encode(), headers=headers, on_delivery=confirmed)


@dataclass
class Projection:
    """One database, group and index, with its workers."""

    name: str
    url: str
    topic: str
    environ: dict[str, str]
    es: Elasticsearch
    start: StartProcess
    workers: list[RunningProcess] = field(default_factory=list)
    most_open: int = 0

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    @property
    def index(self) -> str:
        return f"index-{self.name}"

    def make_index(self) -> None:
        settings = {"number_of_shards": 1, "number_of_replicas": 0}
        self.es.indices.create(index=self.index, settings=settings, mappings={"dynamic": False})

    def begin(self) -> None:
        self.workers = [self.start(**self.environ) for _ in range(WORKERS)]

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers = []

    def replace(self, number: int) -> None:
        self.workers[number].kill()
        self.workers[number] = self.start(**self.environ)

    def count(self, query: str) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(query.encode()).fetchone()
            return int(row[0]) if row else 0

    def look(self) -> None:
        self.most_open = max(self.most_open, self.count(OPEN))

    def is_done(self, desk: KafkaDesk) -> bool:
        try:
            ends = {number: end for number, end in desk.ends(self.topic).items() if end}
            found = desk.committed(self.group, self.topic)
        except (StreamDown, KafkaException):
            return False
        return all(found.get(number) == end for number, end in ends.items()) and not self.count(OPEN)

    def documents(self) -> dict[str, int]:
        self.es.indices.refresh(index=self.index)
        hits = helpers.scan(self.es, index=self.index, version=True, _source=False)
        return {hit["_id"].removeprefix("article:"): int(hit["_version"]) for hit in hits}


@contextmanager
def flood(es: Elasticsearch) -> Iterator[list[int]]:
    """Bulk requests to another index, so that the server refuses some of everybody's. Gives how many were refused."""
    stop, refused = threading.Event(), [0]
    body: list[dict[str, Any]] = []
    for n in range(200):
        body += [{"index": {}}, {"n": n, "text": "x" * 300}]

    def send() -> None:
        while not stop.is_set():
            with suppress(*DOWN):
                items = es.bulk(index="flood", operations=body)["items"]
                refused[0] += sum(item["index"]["status"] == 429 for item in items)

    senders = [threading.Thread(target=send, daemon=True) for _ in range(12)]
    for sender in senders:
        sender.start()
    try:
        yield refused
    finally:
        stop.set()
        for sender in senders:
            sender.join(60)


class Drill:
    def __init__(self, cluster: EmbeddedKafkaCluster, desk: KafkaDesk, writer: Writer, both: list[Projection]) -> None:
        self.cluster, self.desk, self.writer, self.both = cluster, desk, writer, both
        self.dice = random.Random(2)
        self.brokers = self.killed = self.refused = 0
        self.watching = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()
        for projection in self.both:
            projection.begin()
        self.writer.start()
        until = time.monotonic() + SECONDS
        self._harm(until - 0.7 * SECONDS)
        self._mapping_refuses(0.1 * SECONDS)
        self._harm(until - 0.4 * SECONDS)
        self._index_lost(0.1 * SECONDS)
        self._harm(until)
        self.writer.stopping.set()
        self.writer.join(120)

    def _watch(self) -> None:
        while not self.watching.wait(0.5):
            for projection in self.both:
                projection.look()

    def _harm(self, until: float) -> None:
        """A broker in turn, and a worker meanwhile."""
        while time.monotonic() < until:
            broker = self.cluster.brokers[self.brokers % 3]
            self.brokers += 1
            broker.kill()
            time.sleep(3)
            self.dice.choice(self.both).replace(self.dice.randrange(WORKERS))
            self.killed += 1
            time.sleep(4)
            broker.start()
            eventually(lambda: len(self.desk.admin.list_topics(timeout=10).brokers) == 3, what="three brokers")
            time.sleep(3)

    def _mapping_refuses(self, seconds: float) -> None:
        first = self.both[0]
        first.es.indices.put_mapping(index=first.index, dynamic="strict")
        time.sleep(seconds)
        first.es.indices.put_mapping(index=first.index, dynamic="false")

    def _index_lost(self, seconds: float) -> None:
        """Its documents are written anew from the topic, while the server refuses some."""
        first = self.both[0]
        first.end()
        first.es.indices.delete(index=first.index)
        first.make_index()
        back = dict.fromkeys(range(PARTITIONS), 0)

        def rewound() -> bool:
            try:
                self.desk.commit(first.group, first.topic, back)
            except KafkaException:  # a dead member is one until its session ends
                return False
            return True

        eventually(rewound, every=0.5, what="the group is at the beginning")
        with flood(first.es) as refused:
            first.begin()
            time.sleep(seconds)
        self.refused = refused[0]

    def finish(self) -> None:
        for projection in self.both:
            self._drain(projection)
            if projection.count(FAILED):
                why = ("--by", "drill", "--reason", "the mapping takes them again")
                replayed = call("replay", "--all", *why, "--wait", "--yes", env=dict(projection.environ), within=300)
                assert replayed.code == 0, replayed
            self._drain(projection)
        self.watching.set()

    def _drain(self, projection: Projection) -> None:
        def drained() -> bool:
            with psycopg.connect(projection.url) as connection:
                connection.execute("update search_outbox_events set next_retry_at = now() where status = 'pending'")
            return projection.is_done(self.desk)

        eventually(drained, within=300, every=1.0, what=f"{projection.name} is drained")


def judged(projection: Projection, newest: dict[str, tuple[int, str]]) -> dict[str, list[str]]:
    found = projection.documents()
    kept = {id: version for id, (version, op) in newest.items() if op == "upsert"}
    return {
        "lost": [id for id in kept if id not in found],
        "stale": [id for id, version in kept.items() if found.get(id, version) != version],
        "back": [id for id in found if id not in kept],
    }


def test_two_projections_lose_nothing_while_brokers_workers_a_mapping_and_an_index_go(
    postgres_url: str, authority: Authority, tmp_path: Path, start_daemon: StartProcess, server_folder: Path
) -> None:
    with ExitStack() as undo:
        es_server = undo.enter_context(EmbeddedElasticsearch.temporary(settings=TINY))
        es = Elasticsearch(es_server.url, request_timeout=60)
        undo.callback(es.close)
        cluster, addresses = secured_cluster(server_folder / "kafka", authority)
        undo.callback(cluster.stop)
        cluster.start()
        desk = KafkaDesk(cluster.url)
        topic = desk.create_topic("drill", PARTITIONS, min_insync_replicas="2")
        login = {
            "KAFKA_BOOTSTRAP_SERVERS": addresses,
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_SASL_MECHANISM": "PLAIN",
            "KAFKA_SASL_USERNAME": "projector",
            "KAFKA_SASL_PASSWORD": PASSWORD,
            "KAFKA_CA_CERTS": str(authority.certificate),
        }
        both = []
        for name in ("first", "second"):
            url = undo.enter_context(fresh_database(postgres_url))
            migrate(url)
            environ = {
                **login,
                "DATABASE_URL": url,
                "ELASTIC_URL": es_server.url,
                "ELASTIC_INDEX": f"index-{name}",
                "OUTBOX_SOURCE": "kafka",
                "KAFKA_TOPIC": topic,
                "KAFKA_GROUP": f"group-{name}",
                "KAFKA_SESSION_TIMEOUT_SECONDS": "6",
                "KAFKA_MAX_OPEN_EVENTS": str(MOST_OPEN),
                "OUTBOX_BATCH_SIZE": str(BATCH),
            }
            both.append(Projection(name, url, topic, environ, es, start_daemon))
            both[-1].make_index()
        grant(desk, topic, [projection.group for projection in both])
        options = {
            "bootstrap.servers": addresses,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "writer",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(authority.certificate),
        }
        drill = Drill(cluster, desk, Writer(options, topic), both)
        undo.callback(drill.watching.set)
        drill.run()
        drill.finish()
        verdicts = {projection.name: judged(projection, drill.writer.newest) for projection in both}
        failed = {each.name: each.count(FAILED) for each in both}
        told = {
            "seconds": SECONDS,
            "records confirmed": drill.writer.confirmed,
            "documents": len(drill.writer.newest),
            "brokers killed": drill.brokers,
            "workers killed": drill.killed,
            "refused with 429 beside": drill.refused,
            "most open rows": {each.name: each.most_open for each in both},
            "cap": CAP,
            **{name: {kind: len(ids) for kind, ids in found.items()} for name, found in verdicts.items()},
            "failed at the end": failed,
        }
        print(json.dumps(told, indent=1))
        assert all(not ids for found in verdicts.values() for ids in found.values()), verdicts
        assert max(each.most_open for each in both) <= CAP
        assert both[0].most_open > MOST_OPEN, "the mapping filled some partitions to their limit"
        assert not drill.writer.refused
        assert drill.refused > 0
        assert set(failed.values()) == {0}


def grant(desk: KafkaDesk, topic: str, groups: list[str]) -> None:
    """As the table of docs/kafka.md says, and Write for the writer."""

    def right(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
        return AclBinding(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )

    rights = [
        right("projector", ResourceType.TOPIC, topic, AclOperation.READ),
        right("writer", ResourceType.TOPIC, topic, AclOperation.WRITE),
        *(right("projector", ResourceType.GROUP, group, AclOperation.READ) for group in groups),
    ]
    for answer in desk.admin.create_acls(rights).values():
        answer.result(60)
