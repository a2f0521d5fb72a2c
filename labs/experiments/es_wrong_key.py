"""The API key is revoked: no attempt is counted, nothing is lost, and a new key in the same file needs no restart."""

from __future__ import annotations

from pathlib import Path

from labs.checks import exactly
from labs.experiment import Experiment
from labs.experiments._pausing import in_time, no_attempt_spent, pause_is_said, paused, until_paused, waited
from labs.invariants import EVERYWHERE, counters_are_true, nothing_failed, recovered_within
from labs.producing import Load
from labs.stage import Stage

CAUSE = "es_auth"
KEYS: set[str] = set()  # only in this process: a record must not contain them
RIGHTS = ["index", "delete", "view_index_metadata"]


def prepare(stage: Stage) -> None:
    _new_key(stage)


def _new_key(stage: Stage) -> None:
    role = {"cluster": [], "indices": [{"names": [stage.index, stage.real_index], "privileges": RIGHTS}]}
    made = stage.elastic.security.create_api_key(name=stage.index, role_descriptors={"projector": role})
    stage.note("key", made["id"])
    KEYS.add(made["encoded"])
    KEYS.add(made["api_key"])
    _key_file(stage).write_text(made["encoded"] + "\n", encoding="utf-8")
    _key_file(stage).chmod(0o600)


def _key_file(stage: Stage) -> Path:
    return stage.secret_file("api_key")


def settings(stage: Stage) -> dict[str, str]:
    return {"ELASTIC_API_KEY_FILE": str(_key_file(stage))}


def fault(stage: Stage) -> None:
    stage.elastic.security.invalidate_api_key(ids=[stage.story.notes["key"]])
    stage.mark("the API key is revoked", "fault")
    until_paused(stage, CAUSE)
    stage.watch(3.0)


def restore(stage: Stage) -> None:
    """As a secret store rotates it: only the file changes."""
    _new_key(stage)
    stage.mark("a new key is in the file", "act")


def after(stage: Stage) -> None:
    logs = "".join(worker.log.read_text(encoding="utf-8", errors="replace") for worker in stage.workers.values())
    stage.note("keys_in_logs", sum(key in logs for key in KEYS))


EXPERIMENT = Experiment(
    name="es_wrong_key",
    title="The API key is revoked",
    story="A key expires on a Sunday, or someone rotates it in the cluster before the secret store has the new one.",
    hypothesis=(
        "The target pauses with cause es_auth; no attempt is counted. Once the file holds a valid key the daemon reads"
        " it and resumes, without a restart; no log line shows a key."
    ),
    load=Load("mixed", rate=30),
    secured=True,
    only_elasticsearch="it revokes an API key, which OpenSearch has from 3.7 on and only with its security plugin",
    own_settings=settings,
    prepare=prepare,
    fault=fault,
    restore=restore,
    after=after,
    bit=paused(CAUSE),
    invariants=(
        *EVERYWHERE,
        nothing_failed,
        no_attempt_spent,
        pause_is_said(CAUSE),
        in_time,
        exactly("keys that a log line shows", lambda record: record.notes.get("keys_in_logs"), 0, "logs/"),
        exactly("starts of the daemon", lambda record: len(record.said("worker.started")), 1, "logs/w1.ndjson"),
        counters_are_true,
        recovered_within(20),
    ),
    expected_alerts=("OutboxPaused",),
    finding=waited,
    runbook="docs/runbooks/OutboxPaused.md",
    needs="a second Elasticsearch with security on, which it starts itself",
    seconds=60,
)
