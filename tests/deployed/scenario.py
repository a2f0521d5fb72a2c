"""Owns what every deployment goes through: changes, search, a roll, a kill, a stop, servers restarted, nothing lost."""

import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg
from elasticsearch import Elasticsearch

from tests.deployed.shell import DeploymentFailed, await_until, say

Figures = dict[str, Any]
Versions = dict[str, str]

TABLES = """
create table notes (id bigint generated always as identity primary key, title text not null, price numeric not null);
create view search_documents as
select 'note'::text as entity_type, n.id as entity_id,
       json_build_object('title', n.title, 'tags', array['note'], 'price', n.price) as document from notes n;
grant select on notes, search_documents to search_outbox_projector, search_outbox_operator;
"""
CHANGES = (
    "insert into notes (title, price) select 'note ' || i, i from generate_series(1, 700) as i",
    "update notes set price = price + 0.5, title = title || ' again' where id % 3 = 0",  # 233
    "delete from notes where id % 10 = 1",  # 70
)
STOP_LIMIT_SECONDS = 35.0  # what every deployment file gives: OUTBOX_SHUTDOWN_GRACE_SECONDS + 10
RATE = 40.0
LARGEST_PAGE = 10_000


class OwnedDatabase(Protocol):
    database_url: str  # of the owner, from here


class Site(OwnedDatabase, Protocol):
    """One deployment, as people handle it."""

    index: str
    expected_failures: int

    def client(self) -> Elasticsearch:
        """Of its search server."""

    def owner(self, *arguments: str) -> str:
        """A command of the owner: attach."""

    def operator(self, *arguments: str) -> str:
        """A command of an operator: wait, verify, doctor."""

    def start(self) -> None:
        """Two projectors; returns when they are ready."""

    def roll(self) -> None:
        """Replace each projector by a new process, as an upgrade does."""

    def kill(self) -> None:
        """kill -9 of one projector; returns when it was replaced."""

    def stop(self) -> None:
        """Stop all projectors; raises if one was killed."""

    def restart_database(self) -> None: ...
    def restart_search(self) -> None: ...


Step = Callable[[Any], Figures]


def play(site: Site, figures: Figures, only: Container[str] | None = None, **more: Step) -> None:
    """`more` is what only this deployment has."""
    for name, act in (
        ("a thousand changes", thousand_changes),
        ("search", _search),
        ("roll under load", lambda s: under_load(s, s.roll)),
        ("kill -9 under load", lambda s: under_load(s, s.kill)),
        ("stop with a backlog", _stop_with_backlog),
        ("PostgreSQL restarted under load", lambda s: under_load(s, s.restart_database)),
        ("search server restarted under load", lambda s: under_load(s, s.restart_search)),
        *((name.replace("_", " "), act) for name, act in more.items()),
        ("nothing lost", _nothing_lost),
    ):
        if only is not None and name not in only:
            continue
        began = time.monotonic()
        figures[name] = {**act(site), "seconds": round(time.monotonic() - began, 1)}
        say(f"   {name}: {figures[name]}")


def prepare(site: Site) -> None:
    """Tables, view and triggers of an application, in the database that `migrate` has been in."""
    execute(site, TABLES)
    site.owner("attach", "--from-view", "--yes")


def execute(site: OwnedDatabase, *statements: str) -> list[int]:
    with psycopg.connect(site.database_url, autocommit=True, connect_timeout=5) as connection:
        return [connection.execute(statement.encode()).rowcount for statement in statements]


def thousand_changes(site: Site) -> Figures:
    changed = sum(execute(site, *CHANGES))
    if changed < 1000:
        raise DeploymentFailed(f"{changed} changes, not a thousand")
    began = time.monotonic()
    _wait(site)
    return {"changes": changed, "settled_seconds": round(time.monotonic() - began, 1), **_compare(site)}


def _search(site: Site) -> Figures:
    with site.client() as client:
        client.indices.refresh(index=site.index)
        found = client.search(index=site.index, q="title:again AND tags:note", size=0, track_total_hits=True)
    total = int(found["hits"]["total"]["value"])
    with psycopg.connect(site.database_url) as connection:
        row = connection.execute("select count(*) from notes where title like '%%again'").fetchone()
    if row is None or total != row[0] or not total:
        raise DeploymentFailed(f"the search finds {total} notes, the table has {row}")
    return {"found": total}


def under_load(site: Site, act: Any) -> Figures:
    with load(site) as writer:
        time.sleep(2)
        began = time.monotonic()
        act()
        took = time.monotonic() - began
        time.sleep(2)
    _wait(site)
    return {"committed": writer.committed, "act_seconds": round(took, 1), **_compare(site)}


def _stop_with_backlog(site: Site) -> Figures:
    execute(site, "insert into notes (title, price) select 'backlog ' || i, i from generate_series(1, 5000) as i")
    began = time.monotonic()
    site.stop()
    took = time.monotonic() - began
    if took > STOP_LIMIT_SECONDS:
        raise DeploymentFailed(f"stopped after {took:.1f} s, the limit is {STOP_LIMIT_SECONDS:.0f} s")
    execute(site, "update notes set price = price + 1 where id % 5 = 0")
    site.start()
    _wait(site)
    return {"stop_seconds": round(took, 1), **_compare(site)}


def _nothing_lost(site: Site) -> Figures:
    site.operator("verify", "--type", "note")
    with psycopg.connect(site.database_url) as connection:
        row = connection.execute(
            "select count(*), count(*) filter (where processed_at is null and failed_at is null),"
            " count(*) filter (where failed_at is not null) from search_outbox_events"
        ).fetchone()
    events, left, failed = row or (0, 0, 0)
    if left or failed != site.expected_failures:
        raise DeploymentFailed(f"{left} of {events} events are open, {failed} failed")
    return {"events": events, "failed": failed, **_compare(site)}


def settled(site: Site) -> Figures:
    """When nothing is open any more."""
    _wait(site)
    return _compare(site)


def _wait(site: Site) -> None:
    site.operator("wait", "--caught-up", "--timeout", "180")


def _compare(site: Site) -> Figures:
    """Every row with its document, and no other document of this kind."""
    await_until(lambda: not _differences(site), "the index equals the table", 120)
    return {"documents": len(_rows(site))}


def _differences(site: Site) -> set[tuple[str, str, float]]:
    return _rows(site) ^ _documents(site)


def _rows(site: Site) -> set[tuple[str, str, float]]:
    with psycopg.connect(site.database_url) as connection:
        return {(str(i), title, float(price)) for i, title, price in connection.execute("select * from notes")}


def _documents(site: Site) -> set[tuple[str, str, float]]:
    with site.client() as client:
        client.indices.refresh(index=site.index)
        query = {"match": {"tags": "note"}}
        hits = client.search(index=site.index, query=query, size=LARGEST_PAGE)["hits"]["hits"]
    if len(hits) == LARGEST_PAGE:
        raise DeploymentFailed("more documents than a search returns")
    return {(hit["_id"].rpartition(":")[2], hit["_source"]["title"], float(hit["_source"]["price"])) for hit in hits}


class Writer:
    """Changes rows until it is stopped, over outages; what it did not see committed is in the table or is not."""

    def __init__(self, site: Site) -> None:
        self.committed = 0
        self._url = site.database_url
        self.stopping = threading.Event()

    def work(self) -> None:
        while not self.stopping.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
                    while not self.stopping.wait(1 / RATE):
                        self._change(connection, self.committed)
                        self.committed += 1
            except psycopg.OperationalError:
                self.stopping.wait(0.5)

    @staticmethod
    def _change(connection: psycopg.Connection[Any], turn: int) -> None:
        match turn % 5:
            case 0:
                connection.execute("insert into notes (title, price) values (%s, 1)", [f"load {turn}"])
            case 4:
                connection.execute("delete from notes where id = (select min(id) from notes)")
            case _:
                statement = "update notes set price = price + 1 where id = (select max(id) from notes) - %s"
                connection.execute(statement, [turn % 50])


@contextmanager
def load(site: Site) -> Iterator[Writer]:
    writer = Writer(site)
    thread = threading.Thread(target=writer.work, daemon=True)
    thread.start()
    try:
        yield writer
    finally:
        writer.stopping.set()
        thread.join(30)
