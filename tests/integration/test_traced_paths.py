"""Holds the paths of ARCHITECTURE.md to what runs: each is traced on real servers, file by file."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import outbox
from outbox.policy.document import BATCH_BYTES
from outbox.store.documents import ViewDocuments
from outbox.web.services import Shared
from tests.fixtures.commands import call_here
from tests.fixtures.console import StartConsole
from tests.fixtures.inprocess import InProcess, Parts
from tests.fixtures.queue import EventTable
from tests.fixtures.sinks import elastic_sink

PACKAGE = Path(outbox.__file__).parent
PAGE = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
# What joins the parts, or is around every command, page and statement.
AROUND = re.compile(r"app/.*|config/.*|cli/(__init__|menu|progress)|store/queries/.*|sink/client|web/templates/.*")
VIEW = (
    "create table articles (id text primary key, title text);"
    "insert into articles select g::text, 'x' from generate_series(1, 200) g;"
    "create view search_documents as select 'article'::text as entity_type, id as entity_id,"
    " json_build_object('title', title) as document from articles"
)


class Traced:
    """Every file of `outbox/` with a function that runs meanwhile, by thread, in the order of the first one. Imports
    and constructors are left out."""

    def __init__(self) -> None:
        self.by_thread: dict[int, dict[str, None]] = {}

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        code, caller = frame.f_code, frame.f_back
        if event != "call" or not code.co_flags & CO_OPTIMIZED or code.co_name in ("__init__", "__post_init__"):
            return
        file = Path(code.co_filename)
        if file.is_relative_to(PACKAGE) and not (caller is not None and caller.f_code.co_name == "<module>"):
            seen = self.by_thread.setdefault(threading.get_ident(), {})
            seen.setdefault(file.relative_to(PACKAGE).with_suffix("").as_posix())

    def clear(self) -> None:
        self.by_thread.clear()

    def files(self, *of: str) -> list[str]:
        """Of the threads that went through one of these."""
        seen = [files for files in list(self.by_thread.values()) if not of or not files.keys().isdisjoint(of)]
        return list(dict.fromkeys(file for files in seen for file in files))


@contextmanager
def traced() -> Iterator[Traced]:
    """In this thread, and in those that begin meanwhile."""
    found = Traced()
    threading.setprofile(found.note)
    sys.setprofile(found.note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def listed(path: str, *, also: str = "") -> set[str]:
    """What the page says of a path, with the files of another one that it goes through too."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| {path}"))
    return set(re.findall(r"`(\w+/[\w/]+|fast_path)`", row)) | (listed(also) if also else set())


def a_batch(worker: InProcess) -> list[str]:
    """From the claim's statement on: what the gate says is no part of the batch."""

    def run() -> None:
        claimed = worker.claimer.take(0).claimed
        assert claimed is not None
        worker.projector.project(claimed, 0)

    with traced() as found:
        run()
    files = found.files()
    return ["daemon/claiming", *files[files.index("store/events") :]]


@contextmanager
def a_worker(queue: EventTable, elastic_url: str, index: str, **parts: Any) -> Iterator[InProcess]:
    """One that has done a batch: the server is known, connections and caches are there."""
    with elastic_sink(elastic_url) as sink:
        worker = InProcess(Parts(queue.store(), sink, index_of=lambda _: index, **parts))
        worker.run(1)
        yield worker


def check(found: list[str], path: str, most: int, *, also: str = "") -> None:
    assert set(found) == listed(path, also=also), found
    assert len(found) <= most


def test_a_batch_from_the_view(queue: EventTable, elastic_url: str, index: str) -> None:
    queue.connection.execute(VIEW)
    queue.produce_many(41, payload=None)
    view = ViewDocuments(queue.pool(), "search_documents", batch_bytes=BATCH_BYTES)
    with a_worker(queue, elastic_url, index, documents=view) as worker:
        found = a_batch(worker)
        assert worker.last.done == 40
    check(found, "a batch from the view", 14)


def test_a_batch_of_payloads(queue: EventTable, elastic_url: str, index: str) -> None:
    queue.produce_many(21)
    with a_worker(queue, elastic_url, index) as worker:
        found = a_batch(worker)
        assert worker.last.done == 20
    check(found, "a batch of payloads", 12)


def test_a_batch_with_deletes_and_refused_rows(queue: EventTable, elastic_url: str, index: str) -> None:
    queue.produce_many(21)
    with a_worker(queue, elastic_url, index) as worker:
        queue.connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload) values"
            " ('article', '1', 'delete', null), ('article', '2', 'delete', null), ('article', 'x', 'upsert', '[1]'),"
            """ ('article', 'y', 'upsert', '{"t": {"a": 1}}'), ('article', 'z', 'upsert', '{"t": 1}')"""
        )
        found = a_batch(worker)
        assert (worker.last.failed, worker.last.retried, worker.last.released) == (2, 0, 0)
    check(found, "the same with deletes", 18, also="a batch of payloads")


def test_a_replay(
    queue: EventTable,
    database: str,
    elastic_url: str,
    index: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue.produce_many(3)
    queue.connection.execute(
        "update search_outbox_events set status = 'failed', dead_reason = 'non_retryable', error_reason = 'es_429',"
        " attempts = 1"
    )
    for name, value in {"DATABASE_URL": database, "ELASTIC_URL": elastic_url, "ELASTIC_INDEX": index}.items():
        monkeypatch.setenv(name, value)
    with traced() as found:
        done = call_here(("replay", "--by", "alice", "--reason", "mapping fixed", "--limit", "100"), capsys)
    assert done.code == 0, done.err
    assert [row.status for row in queue.rows()] == ["pending"] * 3
    check([each for each in found.files() if not AROUND.fullmatch(each)], "one replay", 9)


def test_the_page_of_failures(queue: EventTable, start_console: StartConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pages share (the status at their head) was read a moment ago, as nearly always."""
    monkeypatch.setattr(Shared, "_is_fresh", lambda shared: shared._last is not None)
    queue.produce_many(3)
    with traced() as found:
        person = start_console().client
        person.get("/ops/queue")
        found.clear()
        answer = person.get("/ops/queue/failures")
    assert answer.status_code == 200
    served = found.files("web/console_server", "web/pages/failures")
    check([each for each in served if not AROUND.fullmatch(each)], "the page of failures", 10)


def test_a_setting() -> None:
    """Where its variable, or the field that holds it, stands; and who reads all of them."""
    known = re.compile(r"OUTBOX_POLL_INTERVAL_SECONDS|worker\.poll_interval_seconds|poll_seconds")
    files = [file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py") if known.search(file.read_text())]
    found = [file.with_suffix("").as_posix() for file in files]
    check([*found, "config/load", "config/settings"], "one setting", 5)
