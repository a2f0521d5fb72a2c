"""Owns the part `docker`, in the order in which it is played."""

from pathlib import Path

from tests.deployed import compose
from tests.deployed.engine import docker_engine
from tests.deployed.scenario import Figures
from tests.deployed.shell import say


def play(folder: Path, only_standins: bool) -> tuple[Figures, dict[str, str]]:
    with docker_engine(folder) as engine:
        kinds = compose.prepare(engine, only_standins)
        say("   the table")
        figures: Figures = {"table": compose.play(engine)}
        say("   Kafka")
        figures["kafka"] = compose.play_kafka(engine)
        return figures, {**engine.versions, "images": kinds}
