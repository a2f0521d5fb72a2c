"""The database is restored from an older copy, so the index is ahead of it: reported, caught up, repaired."""

from __future__ import annotations

import json
import time
from typing import Any, LiteralString

from labs.checks import at_least, exactly, holds, noted
from labs.experiment import CheckResult, Experiment
from labs.experiments._joined import KIND, TABLES, as_postgres_says, comment, note_truth, write_articles
from labs.invariants import EVERYWHERE, nothing_failed, recovered_within
from labs.ledger import LedgerEntry, digest
from labs.producing import Load
from labs.record import Record
from labs.stage import Stage

ARTICLES, ORDERS, CHANGED_AFTER = 60, 40, 6
NEW = 1000  # entities with these ids are not in the older copy
CHANGES = 50  # of each order after the copy: by so much the index is ahead of the older copy's sequence
WAIT_SECONDS = 30.0

ORDER_TABLE: LiteralString = "create table lab_orders (id bigint primary key, content text not null)"
# Changes between the copy and the restore are in no ledger: the restore undoes them.
LATER_ORDERS: LiteralString = """
with changed as (
    insert into lab_orders (id, content) select g, 'later ' || %(n)s from generate_series(1, %(orders)s) g
    on conflict (id) do update set content = excluded.content returning id, content),
added as (
    insert into lab_orders (id, content) select %(new)s + g, 'new' from generate_series(1, 5) g
    on conflict (id) do update set content = excluded.content returning id, content)
insert into search_outbox_events (entity_type, entity_id, op, payload)
select 'order', id::text, 'upsert', json_build_object('title', 'order ' || id, 'content', content)
  from (select * from changed union all select * from added) c
"""
LATER_ARTICLES: LiteralString = """
with commented as (insert into lab_comments (article_id, text) select id, 'later' from lab_articles),
     added as (insert into lab_articles (id, title) select %(new)s + g, 'new' from generate_series(1, 5) g returning id)
select count(outbox_refresh('article', id::text)) from (select id from lab_articles union all select id from added) a
"""
LATER_DELETES: LiteralString = """
with o as (delete from lab_orders where id = 1 returning id), a as (delete from lab_articles where id = 1 returning id),
     e as (insert into search_outbox_events (entity_type, entity_id, op) select 'order', id::text, 'delete' from o)
select outbox_refresh('article', id::text) from a
"""
TRUTH: LiteralString = """
select entity_type, entity_id::text, document from search_documents
union all
select 'order', id::text, jsonb_build_object('title', 'order ' || id, 'content', content) from lab_orders
"""
REFRESHES: LiteralString = """
select id::text, entity_id from search_outbox_events where op = 'refresh' and entity_type = %(kind)s
"""
REPAIRS: LiteralString = """
select id::text, entity_type, entity_id, op, event_version, payload from search_outbox_events
 where idempotency_key like 'repair:%%'
"""


def prepare(stage: Stage) -> None:
    stage.outbox("migrate", "--by-entity")  # so that verify can walk orders, which no view has
    stage.table.rows(TABLES)
    stage.table.rows(ORDER_TABLE)
    write_articles(stage, range(1, ARTICLES + 1))
    for number in range(1, ORDERS + 1):
        _write_order(stage, number, "first")


def _write_order(stage: Stage, number: int, content: str) -> None:
    stage.table.rows(
        "insert into lab_orders (id, content) values (%(id)s, %(content)s)"
        " on conflict (id) do update set content = excluded.content",
        id=number,
        content=content,
    )
    stage.table.insert(str(number), entity_type="order", payload={"title": f"order {number}", "content": content})


def fault(stage: Stage) -> None:
    """Copy; make and project many changes; restore the copy; make a few changes; then follow the runbook."""
    stage.idle()
    _stop_daemons(stage)
    stage.servers.copy_database(stage.database, stage.copy)
    stage.undo_later(lambda: stage.servers.drop_database(stage.copy))
    stage.mark("the database is copied", "act")
    _start_daemons(stage)
    _change_much(stage)
    stage.note("sequence_at_restore", _last_version(stage))
    _stop_daemons(stage)
    stage.servers.put_back(stage.database, stage.copy)
    stage.mark("the older copy is restored", "fault")
    stage.note("sequence_restored", _last_version(stage))
    _start_daemons(stage)
    _change_a_little(stage)
    _heal(stage)


def _change_much(stage: Stage) -> None:
    for n in range(CHANGES):
        stage.table.rows(LATER_ORDERS, n=n, orders=ORDERS, new=NEW)
    stage.table.rows(LATER_ARTICLES, new=NEW)
    stage.table.rows(LATER_DELETES)
    _settled(stage)


def _change_a_little(stage: Stage) -> None:
    """Events with payloads first: once a refresh has raised the sequence, their versions are no longer too low."""
    for number in range(2, CHANGED_AFTER + 2):
        _write_order(stage, number, "after the restore")
    _settled(stage)
    _wait_for(stage, "version.ahead")
    with stage.table.connect() as connection:
        for number in range(2, CHANGED_AFTER + 2):
            with connection.transaction():
                entry = comment(connection, number, "after the restore")
            stage.ledger.add(entry)
    _settled(stage)
    _wait_for(stage, "version.raised")


def _wait_for(stage: Stage, event: str) -> None:
    """Wait a while; a later check reports if it never happened."""
    until = time.monotonic() + WAIT_SECONDS
    stage.wait_until(lambda: _said(stage, event) or time.monotonic() > until, event)


def _said(stage: Stage, event: str) -> bool:
    return any(worker.facts(event) for worker in stage.workers.values())


def _heal(stage: Stage) -> None:
    """As in docs/runbooks/OutboxIndexAhead.md: refresh all, repair the rest, delete unknown documents."""
    _verify(stage, "drift_before")
    known = {entry.id for entry in stage.ledger.entries}
    stage.outbox("refresh", "--type", KIND, "--all", "--by", "alice", "--reason", "restored", "--rate", "0", "--yes")
    for id, entity in stage.table.rows(REFRESHES, kind=KIND):
        if id not in known:
            stage.ledger.add(LedgerEntry(id, KIND, entity, "refresh", 0, "", time.time()))
    _settled(stage)
    _verify(stage, "drift_after_refresh")
    stage.outbox("repair", "--by", "alice", "--reason", "restored", "--rate", "0", "--yes")
    for id, kind, entity, op, version, payload in stage.table.rows(REPAIRS):
        # Documents of the view are written under a version that is drawn later, whatever the event's version is.
        body = digest(payload) if payload else ""
        observed = op if kind == "order" else "refresh"
        stage.ledger.add(LedgerEntry(id, kind, entity, observed, version, body, time.time()))
    _settled(stage)
    unknown = _verify(stage, "drift_after_repair")["first"]["unknown"]
    for document in unknown:  # an order without any event: only a person can decide that it was deleted
        version = int(document["elasticsearch_version"])
        stage.table.insert(document["entity_id"], op="delete", version=version, entity_type=document["entity_type"])
    stage.note("unknown", len(unknown))
    _settled(stage)
    _verify(stage, "drift_at_last")


def _verify(stage: Stage, name: str) -> dict[str, Any]:
    done = stage.outbox("verify", "--rate", "0", "--json", expect=(0, 1, 3))
    found: dict[str, Any] = json.loads(done.stdout)
    stage.note(name, {"exit": done.returncode, "sentence": found.get("sentence", "")})
    return found


def _settled(stage: Stage) -> None:
    open_ = "processed_at is null and failed_at is null"
    stage.wait_until(lambda: stage.table.count(open_) == 0, "everything is settled")


def _last_version(stage: Stage) -> int:
    return int(stage.table.value("select last_value from search_outbox_version"))


def _stop_daemons(stage: Stage) -> None:
    codes = [stage.worker(name).end() for name in stage.experiment.workers]
    stage.note("stopped_with", [*stage.story.notes.get("stopped_with", []), *codes])
    stage.mark("daemons stopped", "act")


def _start_daemons(stage: Stage) -> None:
    for name in stage.experiment.workers:
        stage.start(name, wait=False)
    for name in stage.experiment.workers:
        stage.await_ready(name)


def restore(stage: Stage) -> None:
    for name in stage.experiment.workers:
        if not stage.worker(name).running:
            stage.start(name)
    stage.producer.resume()


def after(stage: Stage) -> None:
    stage.watch(2.0)  # the load continues above the raised sequence
    note_truth(stage, TRUTH)


def raised(record: Record) -> CheckResult:
    lines = record.said("version.raised")
    written = sum(row["action"] == "VERSION_RAISED" for row in record.audit)
    counted = record.total("outbox_version_raised_total")
    observed = f"{len(lines)} log lines, {written} audit rows, outbox_version_raised_total {counted:.0f}"
    ok = len(lines) == written == counted and len(lines) > 0
    return holds(
        "The sequence is raised and reported", "log, audit and metric agree", observed, ok, "logs/, audit.ndjson"
    )


def payloads_reported(record: Record) -> CheckResult:
    lines = record.said("version.ahead", entity_type="order")
    observed = (
        f"{len(lines)} lines about orders, the first: {lines[0]['sent']} sent, {lines[0]['current']} held"
        if lines
        else "none"
    )
    return holds("Events with payloads are reported", "version.ahead for an order", observed, bool(lines), "logs/")


def drift(record: Record) -> CheckResult:
    results = {
        "restored": record.notes.get("drift_before"),
        "refreshed": record.notes.get("drift_after_refresh"),
        "repaired": record.notes.get("drift_after_repair"),
        "unknown ones deleted": record.notes.get("drift_at_last"),
    }
    observed = "; ".join(f"{name}: {(result or {}).get('sentence', 'not run')}" for name, result in results.items())
    codes = [(result or {}).get("exit") for result in results.values()]
    expected = "outbox verify: drift (1), drift, what only a person can decide (3), no drift (0)"
    return holds("Refresh and repair heal it", expected, observed, codes == [1, 1, 3, 0], "record.json (notes, steps)")


def behind(record: Record) -> float:
    return noted("sequence_at_restore")(record) - noted("sequence_restored")(record)


EXPERIMENT = Experiment(
    name="database_restored",
    title="The database is restored from an older copy",
    story=(
        "A disk is lost and a backup is restored, or a failover promotes a lagging replica. The index"
        " holds documents and versions that the database does not know, and its sequence repeats versions"
        " that the index already has."
    ),
    hypothesis=(
        "The first refresh that finds a higher version raises the sequence above it; log, audit and a metric report it."
        " A refresh of everything then makes each document match the view. Events with payloads whose version is"
        " too low are reported. `outbox repair` fixes those and removes documents that the view does not know."
        " Documents written from payloads without a remaining event are listed by `outbox verify` and left to a person."
    ),
    load=Load("update", rate=40),
    least_events=150,
    workers=("w1", "w2"),
    prepare=prepare,
    fault=fault,
    restore=restore,
    after=after,
    bit=at_least("versions by which the index was ahead", behind, 1000, "record.json (notes)"),
    invariants=(
        *EVERYWHERE,
        as_postgres_says,
        raised,
        payloads_reported,
        drift,
        nothing_failed,
        exactly(
            "daemons stopped for the copy exited with", lambda r: set(r.notes.get("stopped_with", [])), {0}, "notes"
        ),
        recovered_within(20),
    ),
    expected_alerts=("OutboxIndexAhead",),
    finding=lambda record: (
        f"The index was {behind(record):.0f} versions ahead, the sequence was raised"
        f" {record.total('outbox_version_raised_total'):.0f} times, and there was no drift in the end;"
    ),
    runbook="docs/runbooks/OutboxIndexAhead.md",
    seconds=60,
)
