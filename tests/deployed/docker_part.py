"""Owns the parts `docker` and `kafka`: the compose files, with the table and with Kafka."""

from pathlib import Path

from tests.deployed import alerts_part, compose, newcomer
from tests.deployed.engine import docker_engine
from tests.deployed.scenario import Figures, Versions
from tests.deployed.shell import say


def play(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    with docker_engine(folder) as engine:
        versions |= {**engine.versions, "images": compose.prepare(engine, only_standins)}
        newcomer.play(engine, figures.setdefault("first document by the README", {}))
        say(f"   {figures}")
        compose.play(engine, figures)


def play_kafka(folder: Path, only_standins: bool, figures: Figures, versions: Versions) -> None:
    with docker_engine(folder) as engine:
        versions |= {**engine.versions, "images": compose.prepare(engine, only_standins, with_kafka=True)}
        compose.play_kafka(engine, figures, alerts_part.play_stream)
