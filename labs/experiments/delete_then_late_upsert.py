"""A write arrives after its document was deleted and Elasticsearch forgot the delete: the document is deleted again."""

from __future__ import annotations

import time

from labs.checks import at_least, noted
from labs.experiment import Experiment
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within, versions_never_fall
from labs.producing import Load
from labs.stage import Stage

COUNT, LEASE = 5, 9
NAMES = [f"zombie-{number}" for number in range(COUNT)]


def fault(stage: Stage) -> None:
    """w1 dies with an upsert in flight; w2 deletes; the upsert is delivered after Elasticsearch forgot the delete."""
    stage.idle()
    stage.worker("w2").freeze()
    stage.link("w1").hold(b"/_bulk")
    for name in NAMES:
        stage.table.insert(name, payload={"title": "late", "content": name, "revision": 1})
    stage.wait_until(lambda: stage.link("w1").counts["held"] >= 1, "the upsert is in flight")
    stage.wait_until(lambda: stage.table.count("status = 'processing'") == COUNT, "w1 holds all of them")
    stage.kill("w1")
    stage.worker("w2").thaw()
    stage.mark("w1's upsert is still in flight", "fault")
    _delete(stage)
    stage.link("w1").release()
    stage.mark("the upsert is delivered", "fault")
    back = stage.wait_until(lambda: _there(stage), "Elasticsearch applies the late upsert")
    stage.note("back", back)
    stage.producer.resume()


def _delete(stage: Stage) -> None:
    for name in NAMES:
        stage.table.insert(name, op="delete")
    done = "op = 'delete' and status = 'done' and entity_id like 'zombie-%%'"
    stage.wait_until(lambda: stage.table.count(done) == COUNT, "the deletes are done")
    # gc_deletes is 1 s here (1 h in an index of `outbox index create`); then the delete is forgotten.
    stage.watch(2.5)


def _there(stage: Stage) -> int:
    docs = stage.elastic.mget(index=stage.index, ids=[f"block:{name}" for name in NAMES], source=False)["docs"]
    return sum(bool(doc["found"]) for doc in docs)


def restore(stage: Stage) -> None:
    stage.producer.resume()
    if not stage.worker("w1").running:
        stage.start("w1")


def after(stage: Stage) -> None:
    until = time.monotonic() + LEASE + 10
    stage.wait_until(lambda: _there(stage) == 0 or time.monotonic() > until, "the late upserts are deleted again")
    stage.note("left", _there(stage))


EXPERIMENT = Experiment(
    name="delete_then_late_upsert",
    title="A write arrives after its document was deleted",
    story="A worker dies while its request is in a buffer between it and Elasticsearch. The document is deleted by"
    " another worker, Elasticsearch forgets the delete (gc_deletes), and then the buffer is delivered.",
    hypothesis=(
        "The document comes back for a moment, because Elasticsearch has forgotten the delete. When the dead worker's"
        " rows are reclaimed, PostgreSQL still knows the newer delete: it is sent again, and the document is deleted."
    ),
    load=Load("mixed", rate=20),
    workers=("w1", "w2"),
    links_apart=True,
    index_settings={"gc_deletes": "1s"},
    settings={"OUTBOX_LEASE_SECONDS": str(LEASE), "ELASTIC_TIMEOUT_SECONDS": "6"},
    fault=fault,
    restore=restore,
    after=after,
    bit=at_least("documents that came back for a moment", noted("back"), 1, "record.json (notes)"),
    # For a moment versions do fall, which is the subject of this lab.
    invariants=(
        *(check for check in EVERYWHERE if check is not versions_never_fall),
        nothing_failed,
        recovered_within(30),
    ),
    finding=lambda record: (
        f"{record.notes['back']} of {COUNT} deleted documents came back by a late write and were removed again;"
    ),
    runbook="docs/runbooks/OutboxStuck.md",
    seconds=35,
)
