"""Joins several embedded Kafka brokers to one cluster, for tests that take one of them away. Not for `outbox up`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from outbox.embedded.kafka import EmbeddedKafka, new_cluster_id
from outbox.embedded.process import free_port
from outbox.embedded.server import Startable


class EmbeddedKafkaCluster(Startable):
    """Brokers that are all controllers too. Any one of three may be killed, frozen and started again."""

    title = "Kafka"

    def __init__(self, folder: Path, *, brokers: int = 3, heap: str = "192m", **options: Any) -> None:
        voters = {node: free_port() for node in range(1, brokers + 1)}
        common = {**options, "heap": heap, "voters": voters, "cluster_id": new_cluster_id()}
        # The ports are fixed from the beginning: the brokers know each other by them.
        self.brokers = [
            EmbeddedKafka(folder / f"kafka-{node}", node=node, port=free_port(), **common) for node in voters
        ]

    @property
    def url(self) -> str:
        """All brokers, for `bootstrap.servers`."""
        return ",".join(broker.url for broker in self.brokers)

    def start(self) -> Self:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_ready()
        return self

    def stop(self) -> None:
        """Like a crash of all: one that ends in order waits for a majority of controllers, which is ending too."""
        for broker in self.brokers:
            broker.kill()
