"""With Kafka a worker is killed with records in flight: another gets its partitions, and nothing is lost."""

from __future__ import annotations

from labs.checks import at_least, at_most, noted
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.producing import Load
from labs.recorder import samples
from labs.stage import Stage
from labs.streamed import PARTITIONS, SESSION_SECONDS

IN_FLIGHT = 20
PARTITIONS_OF = "outbox_stream_partitions"


def _metrics(stage: Stage, name: str) -> dict[str, float]:
    return samples(stage.worker(name).page("/metrics")[1])


def _unsettled(stage: Stage, name: str) -> float:
    return sum(value for metric, value in _metrics(stage, name).items() if metric.startswith("outbox_stream_lag"))


def fault(stage: Stage) -> None:
    """Elasticsearch does not answer w1, so that it has sent records without a reply when it is killed."""
    shared = lambda: all(_metrics(stage, name).get(PARTITIONS_OF) for name in ("w1", "w2"))  # noqa: E731
    stage.wait_until(shared, "both workers have partitions")
    stage.link("w1").stall()
    stage.wait_until(lambda: _unsettled(stage, "w1") >= IN_FLIGHT, "records in flight at w1")
    stage.note("in_flight", _unsettled(stage, "w1"))
    stage.kill("w1")
    killed = stage.story.now()
    stage.link("w1").heal()
    stage.wait_until(lambda: _metrics(stage, "w2").get(PARTITIONS_OF) == PARTITIONS, "w2 has all partitions")
    stage.note("takeover_seconds", round(stage.story.now() - killed, 2))


def restore(stage: Stage) -> None:
    if not stage.worker("w1").running:
        stage.start("w1")


EXPERIMENT = Experiment(
    name="kafka_worker_killed",
    title="A worker of the consumer group is killed with records in flight",
    story=(
        "A machine loses power, or the kernel kills a process that reads from Kafka. It had sent records to"
        " Elasticsearch and committed nothing for them, and nobody says goodbye to the group."
    ),
    hypothesis=(
        "No offset is committed before the reply of Elasticsearch, so the records belong to whoever has the partition"
        " next. The group notices the silence after its session and gives the partitions to the other worker, which"
        " sends the records again: the same versions, without effect where they had arrived."
    ),
    load=Load("mixed", rate=60),
    kafka=True,
    workers=("w1", "w2"),
    links_apart=True,
    fault=fault,
    restore=restore,
    bit=at_least("records in flight at the kill", noted("in_flight"), IN_FLIGHT, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        at_most("takeover", noted("takeover_seconds"), SESSION_SECONDS + 5, "record.json (notes)", " s"),
        recovered_within(20),
    ),
    expected_alerts=("OutboxInstanceDown",),
    finding=lambda record: (
        f"{record.notes['in_flight']:.0f} records were in flight at the kill, and the other worker had all partitions"
        f" after {record.notes['takeover_seconds']} s;"
    ),
    runbook="docs/runbooks/OutboxInstanceDown.md",
    needs="a PostgreSQL, a Kafka and a Kafka Connect of its own",
    seconds=90,
)
