"""Owns the part `docker`, in the order in which it is played."""

from pathlib import Path

from tests.deployed import compose
from tests.deployed.engine import docker_engine
from tests.deployed.scenario import Figures
from tests.deployed.shell import DeploymentFailed, say

# Panels of what neither run does, such as webhooks.
NOWHERE: frozenset[str] = frozenset()


def play(folder: Path, only_standins: bool) -> tuple[Figures, dict[str, str]]:
    with docker_engine(folder) as engine:
        kinds = compose.prepare(engine, only_standins)
        say("   the table")
        figures: Figures = {"table": compose.play(engine)}
        say("   Kafka")
        figures["kafka"] = compose.play_kafka(engine)
        bare = [set(figures[run]["monitoring"]["panels_without_series"]) for run in ("table", "kafka")]
        figures["panels_without_series"] = sorted(bare[0] & bare[1])
        if strange := bare[0] & bare[1] - NOWHERE:
            raise DeploymentFailed(f"panels without a series in both runs: {sorted(strange)}")
        return figures, {**engine.versions, "images": kinds}
