"""Tests a running installation from a producer's insert to a replay, prints the results, and cleans up after itself.

Inserts go to DATABASE_URL, like a producer's; everything else goes through the console's API.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from outbox.config import Settings, load_settings
from outbox.embedded.elasticsearch import EmbeddedElasticsearch
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.embedded.process import await_free, free_port
from outbox.errors import ConfigurationError
from outbox.sink.client import Reply, connect
from outbox.store.schema.migrate import migrate

KIND = "outbox-smoke"
BY = {"by": "scripts/smoke", "reason": "smoke test"}
PATIENCE_SECONDS = 60.0


class SmokeFailed(Exception):
    """One step failed."""


class Installation:
    """The console's API, the database and the index of one installation."""

    def __init__(self, console: str, settings: Settings) -> None:
        if not console.startswith(("http://", "https://")):
            raise SmokeFailed(f"{console} is not an address: give that of the console, such as http://localhost:8090")
        self.console = console.rstrip("/").removesuffix("/ops/queue")
        self.settings = settings
        self.database = psycopg.connect(settings.database.dsn, autocommit=True)
        self.elastic = connect(settings.elastic)
        self.ids: list[str] = []

    def insert(self, op: str, entity: str, payload: str | None = None) -> str:
        """One event, as a producer writes it."""
        row = self.database.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload) values (%s, %s, %s, %s)"
            " returning id",
            [KIND, entity, op, payload],
        ).fetchone()
        assert row is not None
        self.ids.append(str(row[0]))
        return self.ids[-1]

    def event(self, id: str) -> dict[str, Any]:
        return self.call("GET", f"/events/{id}")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        headers = {"content-type": "application/json"}
        if token := os.environ.get("SMOKE_TOKEN"):
            headers["authorization"] = f"Bearer {token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.console}/api/v1{path}", data, headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=15) as reply:  # noqa: S310
                found: dict[str, Any] = json.load(reply)
                return found
        except urllib.error.HTTPError as refused:
            raise SmokeFailed(f"{method} {path} answered {refused.code}: {refused.read().decode()[:300]}") from None
        except OSError as away:
            raise SmokeFailed(f"the console at {self.console} does not answer: {away}") from None

    def found(self, entity: str) -> int:
        """The number of documents that a search by the id finds."""
        id = self.settings.document_id.format(entity_type=KIND, entity_id=entity)
        body = json.dumps({"query": {"ids": {"values": [id]}}}).encode()
        reply = self.elastic.call("POST", f"/{self.settings.elastic.index_for(KIND)}/_search", body)
        if not isinstance(reply, Reply) or reply.status != 200:
            raise SmokeFailed("Elasticsearch did not answer the search: is ELASTIC_URL that of the installation?")
        return int(reply.body["hits"]["total"]["value"])

    def clean_up(self, entity: str) -> None:
        """Removes the document by a projected delete, then our own rows. The audit stays."""
        gone = self.insert("delete", entity)
        wait(lambda: self.event(gone)["status"] == "done", "the delete of the test document")
        wait(lambda: not self.found(entity), "the test document to be gone")
        self.forget()

    def forget(self) -> None:
        self.database.execute("delete from search_outbox_events where id = any (%s::uuid[])", [self.ids])
        self.database.execute("delete from search_outbox_attempts where event_id = any (%s::uuid[])", [self.ids])


def wait(probe: Callable[[], Any], what: str) -> float:
    """Waits until the probe is true; returns the seconds."""
    began = time.monotonic()
    while not probe():
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise SmokeFailed(
                f"{what}: not seen within {PATIENCE_SECONDS:.0f} s. Is a projector running for all entity types?"
            )
        time.sleep(0.1)
    return time.monotonic() - began


def try_installation(at: Installation) -> None:
    entity = str(uuid4())
    try:
        _upsert(at, entity)
        _bad_op(at)
        at.clean_up(entity)
    except SmokeFailed:
        # A delete would not be projected now: remove at least our rows.
        at.forget()
        raise
    say("cleaned up")


def _upsert(at: Installation, entity: str) -> None:
    # An empty document fits every mapping.
    id = at.insert("upsert", entity, "{}")
    done = wait(lambda: at.event(id)["status"] == "done", "an upsert to be done")
    searchable = wait(lambda: at.found(entity) == 1, "its document to be searchable")
    say(f"an upsert was done after {done:.1f} s and searchable {searchable:.1f} s later")


def _bad_op(at: Installation) -> None:
    id = at.insert("not-a-real-op", str(uuid4()))
    wait(lambda: at.event(id)["status"] == "failed", "an unknown op to fail")
    _expect(at.event(id), dead_reason="non_retryable", error_code="OUTBOX_PAYLOAD_UNSUPPORTED", replay_count=0)
    say("an unknown op failed as non_retryable")
    replay = at.call("POST", f"/events/{id}/replay", BY)
    wait(lambda: _failed_again(at.event(id)), "its replay to be processed")
    _expect(at.event(id), dead_reason="non_retryable", attempts=1)
    over = ("settled", "failed", "timeout", "cancelled")
    wait(lambda: at.call("GET", f"/replays/{replay['id']}")["status"] in over, "its replay to settle")
    _expect(at.call("GET", f"/replays/{replay['id']}"), status="settled", failed_again=1)
    say("its replay was processed and settled")


def _failed_again(event: dict[str, Any]) -> bool:
    return bool(event["status"] == "failed" and event["replay_count"] == 1)


def _expect(seen: dict[str, Any], **wanted: Any) -> None:
    wrong = {name: seen.get(name) for name, value in wanted.items() if seen.get(name) != value}
    if wrong:
        raise SmokeFailed(f"expected {wanted}, saw {wrong}")


def try_failing_sink(database_url: str) -> None:
    """In its own database, against a port without a server."""
    name = f"outbox_smoke_{uuid4().hex[:8]}"
    own = psycopg.conninfo.make_conninfo(database_url, dbname=name)
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            migrate(own)
            _exhaust(own)
        finally:
            server.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
    say("a row with max_attempts 2 against a failing sink ended as max_attempts_exceeded")


def _exhaust(url: str) -> None:
    env = {**os.environ, "DATABASE_URL": url, "ELASTIC_URL": "http://127.0.0.1:9", "OUTBOX_METRICS_PORT": "0"}
    env |= {"OUTBOX_BASE_BACKOFF_SECONDS": "0.2", "OUTBOX_MAX_BACKOFF_SECONDS": "1"}
    with psycopg.connect(url, autocommit=True) as connection, _process(["run"], env):
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload, max_attempts)"
            " values (%s, '1', 'upsert', '{}', 2)",
            [KIND],
        )
        query = "select status, dead_reason, attempts from search_outbox_events"
        wait(lambda: (connection.execute(query).fetchone() or [""])[0] == "failed", "a row to use up its attempts")
        seen = connection.execute(query).fetchone()
        if seen != ("failed", "max_attempts_exceeded", 2):
            raise SmokeFailed(f"expected failed, max_attempts_exceeded, 2 attempts; saw {seen}")


@contextmanager
def _process(command: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "outbox", *command]
    process = subprocess.Popen(argv, env=env, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def embedded() -> None:
    """Its own servers, projector and console, in a temporary folder."""
    print("starting PostgreSQL and Elasticsearch", flush=True)
    with EmbeddedPostgres.temporary() as postgres, EmbeddedElasticsearch.temporary(heap="512m") as elastic:
        migrate(postgres.url)
        port = free_port()
        flags = {"DATABASE_URL": postgres.url, "ELASTIC_URL": elastic.url, "OUTBOX_CONSOLE_PORT": str(port)}
        env = {**os.environ, **flags, "OUTBOX_METRICS_PORT": "0"}
        with _process(["index", "create"], env) as create:
            create.wait(60)
        with _process(["run"], env), _process(["console"], env):
            wait(lambda: not await_free(port, 0), "the console to listen")
            try_installation(Installation(f"http://127.0.0.1:{port}", load_settings(flags=flags)))
            try_failing_sink(postgres.url)


def say(text: str) -> None:
    print(f"ok    {text}", flush=True)


def main(arguments: list[str]) -> int:
    try:
        if arguments:
            try_installation(Installation(arguments[0], load_settings()))
        else:
            embedded()
    except (SmokeFailed, ConfigurationError, psycopg.Error) as wrong:
        print(f"FAIL  {wrong}", flush=True)
        return 1
    print("all steps passed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
