"""Owns the parts `docker` and `kafka`: the compose files, with the table and with Kafka."""

from pathlib import Path

from tests.deployed import compose
from tests.deployed.engine import docker_engine
from tests.deployed.scenario import Figures, Versions


def play(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    with docker_engine(folder) as engine:
        versions |= {**engine.versions, "images": compose.prepare(engine, only_standins)}
        compose.play(engine, figures)


def play_kafka(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    with docker_engine(folder) as engine:
        versions |= {**engine.versions, "images": compose.prepare(engine, only_standins)}
        compose.play_kafka(engine, figures)
