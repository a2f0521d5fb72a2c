"""Owns the drill of an upgrade under load: old daemons, migrate, both, new ones alone, and back; each step checked."""

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
from elasticsearch import Elasticsearch

from labs import index
from labs.collect import STEPS
from labs.ledger import Ledger
from labs.producing import Load, Producer
from labs.worker import Worker
from outbox.store.schema import files
from tests.compat import linked
from tests.compat.combination import RESULTS
from tests.compat.evidence import Check, Connection, judged, longest_gap, value
from tests.compat.ground import MissingSoftware
from tests.compat.outcome import Outcome, commit, now
from tests.compat.release import CodeRevision, Done
from tests.compat.run import say
from tests.fixtures.postgres import fresh_database
from tests.fixtures.servers import choose_servers
from tests.fixtures.waiting import eventually

# Release 0.1.0; revisions before it have another history of migrations.
PREVIOUS = "34e92b57"
INDEX = "upgrade"
RATE = 100.0
SETTINGS = {
    "ELASTIC_INDEX": INDEX,
    "OUTBOX_OUTAGE_POLICY": "pause",
    "OUTBOX_LEASE_SECONDS": "10",
    "OUTBOX_RECLAIM_INTERVAL_SECONDS": "1",
    "OUTBOX_BATCH_SIZE": "50",
    "OUTBOX_POLL_INTERVAL_SECONDS": "0.1",
}


@dataclass
class Drill:
    old: CodeRevision
    new: CodeRevision
    folder: Path
    connection: Connection
    elastic: Elasticsearch
    env: dict[str, str]
    ledger: Ledger
    checks: list[Check] = field(default_factory=list)
    workers: dict[str, Worker] = field(default_factory=dict)

    def check(self, name: str, ok: bool, detail: str = "") -> None:
        self.checks.append(Check(name, ok, detail))
        say(f"   {self.checks[-1]}")

    def start(self, release: CodeRevision, label: str) -> Worker:
        worker = release.daemon(label.split(".", maxsplit=1)[0], label, self.env, self.folder)
        self.workers[label] = worker
        return worker

    def ready(self, release: CodeRevision, *labels: str) -> None:
        for label in labels:
            worker = self.start(release, label)
            eventually(partial(_is_ready, worker), within=60, what=f"{label} ready\n{worker.tail()}")

    def settled_by(self, *labels: str) -> int:
        """Each event counts for whoever held it last."""
        owners = [label.split(".")[0] for label in labels]
        return int(
            value(
                self.connection,
                "select count(*) from recorded_steps where new_status = 'done' and old_owner = any(%s)",
                owners,
            )
        )

    def await_progress(self, events: int, *labels: str) -> int:
        before = self.settled_by(*labels)
        eventually(
            lambda: self.settled_by(*labels) >= before + events, within=90, what=f"{events} more settled by {labels}"
        )
        return self.settled_by(*labels) - before

    def stop(self, *labels: str) -> list[int | None]:
        return [self.workers[label].end(40) for label in labels]

    def drained(self) -> None:
        open_rows = "select count(*) from search_outbox_events where processed_at is null and failed_at is null"
        eventually(lambda: value(self.connection, open_rows) == 0, within=120, what="a drained outbox")

    def judge(self, when: str) -> None:
        self.drained()
        entries = list(self.ledger.entries)
        found_by = (
            *judged(self.connection, self.elastic, INDEX, entries, others=linked.ARTICLES),
            *linked.judged(self.connection, self.elastic, INDEX),
        )
        for found in found_by:
            self.check(f"{found.name} ({when})", found.ok, found.detail)


def _is_ready(worker: Worker) -> bool:
    return worker.page("/readyz")[0] == 200


@contextmanager
def producing(drill: Drill, seed: int) -> Iterator[None]:
    with linked.writing(drill.env["DATABASE_URL"], seed), _loaded(drill, seed):
        yield


@contextmanager
def _loaded(drill: Drill, seed: int) -> Iterator[None]:
    load = Load("mixed", rate=RATE, concurrency=3)
    producer = Producer(drill.env["DATABASE_URL"], load, drill.ledger, seed)
    producer.start()
    try:
        yield
    finally:
        producer.stop()


def forward(drill: Drill) -> int:
    """Old daemons -> migrate -> both -> new ones alone, while producers commit. The schema's number before."""
    done = drill.old.outbox(drill.env, "migrate")
    drill.check(
        "the old release makes its schema", done.returncode == 0, done.stderr.strip()[-200:] * (done.returncode != 0)
    )
    before = int(value(drill.connection, "select max(number) from search_outbox_migrations"))
    drill.connection.execute(STEPS.read_bytes())
    drill.connection.execute(
        "insert into search_outbox_events (entity_type, entity_id, op)"
        " select 'odd', g::text, 'not-a-real-op' from generate_series(1, 20) g"
    )
    _attach(drill)
    drill.ready(drill.old, "o1", "o2")
    with producing(drill, seed=1):
        drill.await_progress(300, "o1", "o2")
        _migrate(drill, before)
        both = [drill.await_progress(150, label) for label in ("o1", "o2")]
        drill.check("old daemons go on after the migration", all(both), f"{sum(both)} events settled by them")
        drill.workers["o2"].kill()
        _restart_old(drill, before)
        drill.ready(drill.new, "n1", "n2")
        mixed = [drill.await_progress(150, label) for label in ("o1", "n1", "n2")]
        drill.check("old and new daemons work side by side", all(mixed), f"{sum(mixed)} events settled by them")
        met = linked.fanouts(drill.connection)
        drill.check("no worker of the old release meets a fan-out", met == 0, f"{met} fan-outs")
        _finish(drill)
        alone = drill.await_progress(300, "n1", "n2")
        drill.check("new daemons go on alone", alone > 0, f"{alone} events settled by them")
    drill.judge("after the upgrade")
    return before


def _attach(drill: Drill) -> None:
    drill.connection.execute(linked.TABLES.encode())
    for words in linked.ATTACH:
        done = drill.old.outbox(drill.env, *words)
        drill.check(f"the old release attaches {words[1]}", done.returncode == 0, _complaint(done))
    drill.connection.execute(linked.ROWS.encode())


def _finish(drill: Drill) -> None:
    """The second step is refused while the last old daemon beats, and turns queries into fan-outs after it."""
    early = drill.new.outbox(drill.env, "migrate", "--finish")
    told = early.stderr.strip().splitlines()[-1:]
    drill.check("the upgrade is not finished beside an old daemon", early.returncode != 0, f"{told}")
    drill.check("the last old daemon leaves cleanly", drill.stop("o1") == [0])
    done = drill.new.outbox(drill.env, "migrate", "--finish")
    drill.check("it is finished without one", done.returncode == 0, _complaint(done))
    eventually(lambda: linked.fanouts(drill.connection, "done") >= 20, within=60, what="20 fan-outs that are done")
    failed = linked.fanouts(drill.connection, "failed")
    drill.check("renames are fan-outs now", failed == 0, f"{linked.fanouts(drill.connection)}, {failed} failed")


def _restart_old(drill: Drill, before: int) -> None:
    """It refuses a newer schema; where the new release brought none it works."""
    if files.latest() == before:
        drill.ready(drill.old, "o2.2")
        drill.check("an old daemon starts again on the same schema", drill.stop("o2.2") == [0])
        return
    refused = drill.start(drill.old, "o2.2")
    code = refused.wait(60)
    told = refused.tail(3)
    drill.check("an old daemon that starts again refuses clearly", code == 78 and "newer" in told, f"exit {code}")


def _complaint(done: Done) -> str:
    return f" left with {done.returncode}: {done.stderr.strip()[-200:]}" if done.returncode else ""


def _migrate(drill: Drill, before: int) -> None:
    since = value(drill.connection, "select clock_timestamp()")
    began = time.monotonic()
    done = drill.new.outbox(drill.env, "migrate")
    took = time.monotonic() - began
    applied = [m.name for m in files.numbered() if (m.number or 0) > before]
    found = {name for (name,) in drill.connection.execute("select name from search_outbox_migrations")}
    told = f"{', '.join(applied)} in {took:.1f} s{_complaint(done)}"
    drill.check("the new release migrates under load", done.returncode == 0 and found >= set(applied), told)
    drill.await_progress(50, "o1", "o2")
    gap = longest_gap(drill.connection, since, value(drill.connection, "select clock_timestamp()"))
    drill.check("projection stands still for less than 5 s meanwhile", gap < 5, f"longest gap {gap:.2f} s")


def back(drill: Drill, to: int) -> None:
    """New daemons stop, the newer migrations are undone, old daemons run again, under load."""
    drill.check("new daemons leave cleanly", drill.stop("n1", "n2") == [0, 0])
    script = drill.new.outbox(drill.env, "migrate", "sql", "--back-to", str(to))
    _detach(drill)
    for part in script.stdout.split("-- Takes back ")[1:]:
        drill.connection.execute(part.partition("\n")[2].encode())
    found = int(value(drill.connection, "select max(number) from search_outbox_migrations"))
    drill.check("the printed script takes the schema back", found == to, f"schema {found}")
    done = drill.old.outbox(drill.env, *linked.ATTACH[1])
    drill.check("the old release attaches it again", done.returncode == 0, _complaint(done))
    with producing(drill, seed=2):
        drill.ready(drill.old, "o3")
        drill.check("an old daemon works again", drill.await_progress(200, "o3") > 0)
    drill.judge("after going back")
    drill.check("it leaves cleanly", drill.stop("o3") == [0])


def _detach(drill: Drill) -> None:
    """What is attached by a query keeps the schema new; the old release attaches it again after the way back."""
    done = drill.new.outbox(drill.env, *linked.DETACH)
    drill.check("the query is detached", done.returncode == 0, _complaint(done))


def upgrade(revision: str) -> Outcome:
    began, at = commit(), now()
    say(f"== upgrade: from {revision} to this checkout, under load")
    folder = RESULTS / "upgrade"
    clock = time.monotonic()
    try:
        with ExitStack() as stack:
            drill, versions = _opened(stack, revision, folder)
            back(drill, forward(drill))
    except MissingSoftware as missing:
        return _told(Outcome("upgrade", "MISSING", detail=str(missing), commit=began, at=at))
    failed = [check for check in drill.checks if not check.ok]
    seconds = round(time.monotonic() - clock)
    detail = (
        f"from {drill.old.name}, {drill.ledger.committed:,} events{'; ' if failed else ''}{'; '.join(map(str, failed))}"
    )
    good = len(drill.checks) - len(failed)
    word = "FAILED" if failed else "passed"
    return _told(Outcome("upgrade", word, good, len(failed), 0, seconds, detail, versions, commit=began, at=at))


def _told(outcome: Outcome) -> Outcome:
    say(f"   {outcome.word}: {outcome.figures} {outcome.detail}")
    outcome.save()
    return outcome


def _opened(stack: ExitStack, revision: str, folder: Path) -> tuple[Drill, dict[str, str]]:
    old = CodeRevision.of(revision)
    servers = choose_servers()
    database_url = stack.enter_context(fresh_database(stack.enter_context(servers.postgres())))
    elastic_url = stack.enter_context(servers.elasticsearch())
    elastic = stack.enter_context(Elasticsearch(elastic_url, request_timeout=60))
    index.create(elastic, INDEX, {}, {})
    stack.callback(index.drop, elastic, INDEX)
    connection = stack.enter_context(psycopg.connect(database_url, autocommit=True))
    (folder / "ledger.ndjson").unlink(missing_ok=True)
    ledger = stack.enter_context(Ledger(folder / "ledger.ndjson"))
    env = {**SETTINGS, "DATABASE_URL": database_url, "ELASTIC_URL": elastic_url}
    drill = Drill(old, CodeRevision(commit()), folder, connection, elastic, env, ledger)
    stack.callback(_end_all, lambda: drill.workers)
    versions = {
        "postgresql": str(value(connection, "show server_version")).split()[0],
        "elasticsearch": str(elastic.info()["version"]["number"]),
        "python": platform.python_version(),
        "pooler": "none",
    }
    return drill, versions


def _end_all(workers: Callable[[], dict[str, Worker]]) -> None:
    for worker in workers().values():
        worker.kill()
