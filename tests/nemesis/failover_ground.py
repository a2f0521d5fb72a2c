"""Owns the servers of the lane failover: a primary, a streaming replica of it, and a database for a switch-over, each
behind a connection of its own. It promotes, copies and switches; it measures nothing."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, LiteralString
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from labs.proxy import Proxy
from outbox.embedded import EmbeddedPostgres
from tests.nemesis.ground import DATABASE_DOWN, Ground
from tests.nemesis.waiting import wait

DATABASE = "nemesis"
PATIENCE_SECONDS = 60.0
WITHOUT_KEY: LiteralString = """
select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind = 'r' and n.nspname = 'public'
   and not exists (select from pg_index where indrelid = c.oid and indisprimary)
"""
COPIED: LiteralString = "select bool_and(srsubstate = 'r') and count(*) > 0 from pg_subscription_rel"
CONFIRMED: LiteralString = (
    "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots where slot_name = 'switch'"
)
# Those of the outbox lag behind; those of the application are what they should be.
LAGGING = "public.search_outbox_"
SEQUENCES: LiteralString = "select schemaname || '.' || sequencename, last_value from pg_sequences where last_value > 0"
KNOWN: LiteralString = "select event_id::text from recorded_steps union select id::text from search_outbox_events"
# Who reads a history goes by versions as they were given at last.
RENUMBERED = """
create table if not exists renumbered (event_id uuid, was bigint, now bigint);
create or replace function record_number() returns trigger language plpgsql as $fn$
begin
    insert into public.renumbered values (old.id, old.event_version, new.event_version);
    return null;
end
$fn$;
create or replace trigger record_number after update of event_version on search_outbox_events for each row
    when (old.event_version is distinct from new.event_version) execute function record_number();
"""


class SwitchedNode(EmbeddedPostgres):
    """A new cluster, or a copy of the one at `copies`."""

    copies: str | None = None
    secret: str | None = None

    def _init(self) -> None:
        if self.copies is None:
            super()._init()
            return
        self._account.give_file(self.folder / "password", self.secret or "")
        command = [self._program("pg_basebackup"), "-D", str(self._data), "-R", "-d", self.copies, "-c", "fast"]
        try:
            self._account.run([*command, "--no-sync"], self.folder)
        except subprocess.CalledProcessError as failed:
            raise psycopg.OperationalError(failed.stderr) from None

    def wipe(self) -> None:
        self.stop()
        shutil.rmtree(self._data, ignore_errors=True)

    @property
    def data(self) -> Path:
        return self._data

    def password(self) -> str:
        return self._password()

    def take_password(self, secret: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.SQL("alter role outbox password {}").format(sql.Literal(secret)))
        self._account.give_file(self.folder / "password", secret)

    def dump_schema(self) -> str:
        argv = [self._program("pg_dump"), "--schema-only", "--no-owner", "--no-privileges", "--no-publications"]
        return self._account.run([*argv, "-d", self.database_url(DATABASE)], self.folder)

    def load(self, text: str) -> None:
        argv = [self._program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.database_url(DATABASE)]
        self._account.run(argv, self.folder, text=text)

    def standby_signal(self, there: bool) -> None:
        path = self.data / "standby.signal"
        if there:
            self._account.give_file(path, "")
        else:
            path.unlink(missing_ok=True)


class FailoverGround(Ground):
    """`nodes` are the two servers of the DSN, `primary` the place of the one that is written to."""

    POSTGRES: ClassVar[Mapping[str, str]] = {
        "wal_level": "logical",
        "fsync": "off",  # programs are killed here, never the machine
        "max_connections": "150",
        "shared_buffers": "64MB",
        "max_wal_size": "1GB",
        "wal_keep_size": "512MB",
        "wal_receiver_status_interval": "1s",
        "wal_retrieve_retry_interval": "500ms",
    }
    nodes: list[SwitchedNode]

    def _new_postgres(self, folder: Path) -> EmbeddedPostgres:
        self.nodes = [SwitchedNode(folder.with_name(f"{folder.name}-{n}"), settings=self.POSTGRES) for n in range(2)]
        self.primary = 0
        return self.nodes[0]

    def _build_roads(self, undo: contextlib.ExitStack) -> None:
        self.elastic_link = Proxy.to(self.elasticsearch.url, "elasticsearch", self._seed, tap=self.wire.tap)
        undo.enter_context(self.elastic_link)
        with self.connect() as connection:
            connection.execute(RENUMBERED)
        self.secret = self.nodes[0].password()
        other = self.nodes[1]
        undo.callback(other.stop)
        self.streams = [self._proxy(undo, self.nodes[0], "stream-0")]
        other.secret, other.copies = self.secret, self.streams[0].url(self.nodes[0].url)
        other.start()
        self.streams.append(self._proxy(undo, other, "stream-1"))
        self.links = [self._proxy(undo, node, f"postgresql-{n}") for n, node in enumerate(self.nodes)]
        self.pave()

    def _proxy(self, undo: contextlib.ExitStack, node: SwitchedNode, name: str) -> Proxy:
        return undo.enter_context(Proxy.to(node.url, name, self._seed))

    @property
    def database_link(self) -> Proxy:
        return self.links[self.primary]

    @database_link.setter
    def database_link(self, _: Proxy) -> None:
        raise AssertionError("it follows from who is the primary")

    def pave(self) -> None:
        for link in (*self.links, *self.streams):
            link.heal()
        self.pave_elastic()

    def road(self) -> dict[str, str]:
        parts = urlsplit(self.database_url)
        login = parts.netloc.rpartition("@")[0]
        hosts = ",".join(f"127.0.0.1:{link.port}" for link in self.links)
        query = "&".join(filter(None, (parts.query, "target_session_attrs=read-write")))
        url = parts._replace(netloc=f"{login}@{hosts}", query=query).geturl()
        return {**super().road(), "DATABASE_URL": url}

    # Who is who

    @property
    def standby(self) -> int:
        return 1 - self.primary

    def lead(self, place: int) -> None:
        """From now on reads and producers go there."""
        self.primary = place
        self.postgres = self.nodes[place]
        self.database_url = self.postgres.database_url(DATABASE)

    def on(self, place: int) -> psycopg.Connection[tuple[object, ...]]:
        """By its own address."""
        return psycopg.connect(self.nodes[place].database_url(DATABASE), autocommit=True, connect_timeout=5)

    def known(self) -> set[str]:
        return {str(id) for (id,) in self.rows(KNOWN)}

    # What is done

    def promote(self) -> int:
        """The replica becomes the primary; answers the place of the old one."""
        old, new = self.primary, self.standby
        with self.on(new) as connection:
            connection.execute("select pg_promote(true, 60)")
        self.lead(new)
        return old

    def rebuild(self, place: int) -> None:
        """As a streaming replica of who is the primary now."""
        node = self.nodes[place]
        node.wipe()
        stream = self.streams[self.primary]
        stream.heal()
        node.secret, node.copies = self.secret, stream.url(self.nodes[self.primary].url)
        for left in (2, 1, 0):
            try:
                node.start()
                break
            except DATABASE_DOWN:
                if not left:
                    raise
                time.sleep(1.0)
        self.links[place].heal()

    def is_streaming(self) -> bool:
        return bool(self.value("select exists (select from pg_stat_replication where state = 'streaming')"))

    def await_replica(self) -> None:
        self.wait(self.is_streaming, "a streaming replica")

    def wait(self, look: Callable[[], object], what: str) -> None:
        if not wait(look, PATIENCE_SECONDS):
            raise TimeoutError(f"waited {PATIENCE_SECONDS:g} s for {what}")

    # The switch-over

    def prepare_switch(self) -> None:
        """The replica's place gets a new cluster, which follows the primary by logical replication. By the
        DSN nobody reaches it yet."""
        place, old = self.standby, self.nodes[self.primary]
        self.links[place].cut()
        node = self.nodes[place]
        node.wipe()
        node.copies = None
        node.start()
        node.take_password(self.secret)
        with psycopg.connect(node.url, autocommit=True) as connection:
            connection.execute("create database nemesis")
        node.load(old.dump_schema())
        with self.on(self.primary) as connection:
            for (table,) in connection.execute(WITHOUT_KEY).fetchall():
                connection.execute(f"alter table {table} replica identity full".encode())
            connection.execute("create publication switch for all tables")
        with self.on(place) as connection:
            # The triggers of attached tables always fire, so here too: what they write is recorded here.
            connection.execute("alter table search_outbox_events enable always trigger record_refresh")
            source = self.streams[self.primary].url(old.database_url(DATABASE))
            made = sql.SQL("create subscription switch connection {} publication switch").format(sql.Literal(source))
            connection.execute(made)
        self.wait(lambda: self._copied(place), "the copy of every table")

    def _copied(self, place: int) -> bool:
        with self.on(place) as connection:
            row = connection.execute(COPIED).fetchone()
        return bool(row and row[0])

    def undo_switch(self) -> None:
        """One that failed half way: the primary takes writes, and has its streaming replica again."""
        for place in (self.standby, self.primary):
            self.links[place].heal()
        self.nodes[self.standby].wipe()
        with self.on(self.primary) as connection:
            connection.execute("alter system reset default_transaction_read_only")
            connection.execute("select pg_reload_conf()")
            connection.execute("drop publication if exists switch")
            connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
        self.rebuild(self.standby)

    def close(self) -> None:
        """The primary takes no writes any more, and ends who could."""
        with self.on(self.primary) as connection:
            connection.execute("alter system set default_transaction_read_only = on")
            connection.execute("select pg_reload_conf()")
            time.sleep(0.2)
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where backend_type = 'client backend' and pid <> pg_backend_pid()"
            )

    def switch(self) -> dict[str, int]:
        """All that was written arrives; all sequences are set but the outbox's. Answers where those two were."""
        place, old = self.standby, self.primary
        with self.on(old) as connection:
            end = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
            self.wait(lambda: (connection.execute(CONFIRMED, end).fetchone() or [False])[0], "the last writes")
            values = {str(name): int(str(last)) for name, last in connection.execute(SEQUENCES).fetchall()}
        with self.on(place) as connection:
            connection.execute("drop subscription switch")
            for name, last in values.items():
                if not name.startswith(LAGGING):
                    connection.execute("select setval(%s::regclass, %s)", [name, last])
        self.nodes[old].stop()
        self.lead(place)
        self.links[place].heal()
        return {name: last for name, last in values.items() if name.startswith(LAGGING)}

    def backends(self, place: int) -> list[tuple[int, float]]:
        """Of workers: pid, and for how many seconds."""
        with self.on(place) as connection:
            rows = connection.execute(
                "select pid, extract(epoch from clock_timestamp() - backend_start)::float8 from pg_stat_activity"
                " where application_name like 'outbox-%'"
            ).fetchall()
        return [(int(str(pid)), float(str(seconds))) for pid, seconds in rows]
