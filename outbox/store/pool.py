"""Owns the connections to PostgreSQL: pools, encoding, raw json, the translation of errors; and how the named queries
of a topic are run over one. Knows no query."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from threading import Lock
from typing import Any, ClassVar, Final, LiteralString, NamedTuple, Self
from weakref import WeakKeyDictionary

import psycopg
from psycopg import Connection, Cursor, DataError
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.string import ByteaBinaryLoader
from psycopg_pool import ConnectionPool, PoolTimeout

from outbox.errors import DatabaseAway, DatabaseDown, LockHeld, NotPermitted, OutboxError, SchemaMismatch
from outbox.store.filters import entity_id_type, typed
from outbox.store.queries import queries

# Of every connection. Payloads go to Elasticsearch as the bytes that come, so they must come as UTF-8, whatever the
# database's encoding and the environment say. A half-open socket is found in 5 + 3 x 2 s; without keepalives, libpq
# waits for the kernel's two hours.
OPTIONS: dict[str, Any] = {
    "client_encoding": "UTF8",
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "connect_timeout": 5,
}


# Elsewhere nothing is prepared: behind pgbouncer before 1.21 a name is anybody's, and a rollback, by which each read of
# a view ends, makes psycopg forget what it has prepared.
UNPREPARED: Final = None
# Of a connection whose statements are kept, all of them ours. To parse and to plan claim and settle anew took 2.0 ms of
# the server's CPU, 0.4 ms by a kept plan: of 28.9 us per event in batches of 500, 24.1 are left (medians of three
# rounds, by turns). The plan must fit whatever the table holds by then: without these, one of an empty table read all
# of it (a claim of 3.7 s instead of 50 ms, with 200,000 rows), and one of a large table would be compiled each time.
KEPT_PLANS: Final = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}


# A document's text must not depend on who reads it: on the role, the database or the environment of a shell. Only until
# the end of the transaction, for poolers. In the statement that is there anyway: 33 us of CPU, 0.07 per event.
_READ_ONLY_WITHIN: Final = """
select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', %s, true),
       set_config('TimeZone', 'UTC', true), set_config('DateStyle', 'ISO, MDY', true),
       set_config('IntervalStyle', 'postgres', true), set_config('bytea_output', 'hex', true),
       set_config('extra_float_digits', '1', true), set_config('lc_monetary', 'C', true),
       set_config('lc_numeric', 'C', true), set_config('lc_time', 'C', true)
"""


class RawJson(Loader):
    """json as the bytes that the producer wrote: never parsed, so no row can poison a fetch."""

    format = Format.TEXT

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class BoundedTime(TimestamptzLoader):
    """A time outside the years 1 to 9999, as infinity is, as the nearest that Python knows: no row spoils a list.

    Only for text, in which people's questions are answered; a claim reads no time."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except DataError:
            text = bytes(data)
            early = text.startswith(b"-") or text.endswith(b"BC")
            return datetime.min.replace(tzinfo=UTC) if early else datetime.max.replace(tzinfo=UTC)


def plain_dsn(url: str) -> str:
    """SQLAlchemy's spelling is accepted; libpq knows only the plain one."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def connect(url: str, *, application: str = "outbox", may_be_standby: bool = False) -> Connection[Any]:
    """One connection of one's own, in autocommit, for what a pool cannot serve: LISTEN, a first query."""
    with translated():
        connection = psycopg.connect(plain_dsn(url), **_parameters(url, application, may_be_standby))
        _read_times(connection)
        return connection


def _parameters(url: str, application: str, may_be_standby: bool) -> dict[str, Any]:
    """Of several hosts only one that accepts writes is right, whatever else the URL asks for: a standby would keep what
    connects to it while the primary restarts. `options` are the URL's or its service's, not those of PGOPTIONS."""
    found: dict[str, Any] = {"autocommit": True, "application_name": application, "prepare_threshold": UNPREPARED}
    found |= OPTIONS
    if "service" not in (given := conninfo_to_dict(plain_dsn(url))):
        found["options"] = given.get("options", "")
    return found if may_be_standby else found | {"target_session_attrs": "read-write"}


class Database:
    """A small pool, in autocommit: one statement is one transaction unless someone says otherwise."""

    def __init__(
        self,
        url: str,
        *,
        size: int,
        application: str = "outbox",
        timeout_seconds: float = 5.0,
        statement_timeout_ms: int | None = None,
        may_be_standby: bool = False,
        prepared: bool = False,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`prepared`: statements are kept, where no pooler is between. `around` whatever is asked of the server."""
        self._around = around
        self._statement_timeout_ms = statement_timeout_ms
        self._url, self._parameters = plain_dsn(url), _parameters(url, application, may_be_standby)
        self._server: PrimaryOf | None = None
        self._met: WeakKeyDictionary[Connection[Any], PrimaryOf] = WeakKeyDictionary()
        self._reads_only, self._prepared = may_be_standby, prepared
        self._refusal = ""  # of the server that answered last
        self.on_other_server: Callable[[Connection[Any]], None] = lambda _: None
        """Called with the first connection to another server than before, and nobody is given one until it succeeds."""
        self._pool = ConnectionPool(
            self._url,
            kwargs=self._parameters,
            min_size=1,
            max_size=size,
            open=False,
            timeout=timeout_seconds,
            configure=self._configure,
            check=self._check,
            reconnect_timeout=10,
            name=application,
        )

    def _configure(self, connection: Connection[Any]) -> None:
        _configure(connection, prepared=self._prepared)
        if self._reads_only:  # a copy that was promoted for its own sake replaces nobody
            return
        try:
            server = meet(connection)
        except ReplacedPrimary as error:
            self._refusal = str(error)
            self._parameters |= _asked_last(connection, self._url, self._parameters)
            connection.close()
            raise
        if server is not None and server != self._server:
            if self._server is not None:
                try:
                    self.on_other_server(connection)
                except psycopg.Error as error:
                    self._refusal = f"nothing is asked of the server that was promoted: {_short(error)}"
                    raise
            self._server = server
        self._refusal = ""
        if server is not None:
            self._met[connection] = server

    def _check(self, connection: Connection[Any]) -> None:
        """One that was made before its primary was replaced may live on where nobody fenced that."""
        if (server := self._met.get(connection)) and server.timeline < _timelines[server.system]:
            connection.close()
            raise ReplacedPrimary(f"on timeline {server.timeline}")

    def open(self) -> None:
        self._pool.open(wait=False)

    def close(self) -> None:
        self._pool.close(timeout=2)

    @contextmanager
    def connection(self) -> Iterator[Connection[Any]]:
        """For single statements. Where the pool has a time limit they get it too, in a transaction of their own: a
        session's setting would reach others behind pgbouncer. So where the isolation must be said (`_configure`)."""
        if self._statement_timeout_ms is None:
            with self._connection() as connection:
                if connection.isolation_level is None:
                    yield connection
                else:
                    with connection.transaction():
                        yield connection
        else:
            with self.transaction() as connection:
                yield connection

    @contextmanager
    def _connection(self) -> Iterator[Connection[Any]]:
        """A connection whose errors speak our language. After a break, the pool's other dead ones are weeded out; one
        that lives and is of no use is closed, or it would be handed out next."""
        with self._around():
            try:
                with translated(), self._pool.connection() as connection:
                    try:
                        yield connection
                    except _OF_NO_USE:
                        connection.close()
                        raise
            except DatabaseDown as error:
                if not self._pool.closed:
                    self._pool.check()
                if self._refusal and isinstance(error.__cause__, PoolTimeout):
                    raise DatabaseAway(self._refusal) from error
                raise

    @contextmanager
    def transaction(
        self, *, read_only: bool = False, snapshot: bool = False, timeout_ms: int | None = None
    ) -> Iterator[Connection[Any]]:
        """Several statements that stand or fall together, with a time limit that lives only in here. What only reads is
        rolled back: a function or a policy of a table that is read must leave no setting and no notification behind.

        `snapshot`: all of them read as of one moment, and change nothing.
        """
        reads = read_only or snapshot
        with self._connection() as connection, connection.transaction(force_rollback=reads):
            if snapshot:  # before any other statement: PostgreSQL takes it only then
                connection.execute("set transaction isolation level repeatable read, read only")
            limit = timeout_ms or self._statement_timeout_ms
            if read_only and limit:  # in one: each statement of a batch's lookup costs 0.3 us per event
                connection.execute(_READ_ONLY_WITHIN, [str(limit)])
            elif read_only:
                connection.execute("set transaction read only")
            elif limit:
                connection.execute("select set_config('statement_timeout', %s, true)", [str(limit)])
            yield connection


@contextmanager
def opened(url: str, *, size: int, application: str) -> Iterator[Database]:
    """A pool for one command. Raises DatabaseDown at once where nobody answers, with the server's own words."""
    connect(url, application=application).close()
    database = Database(url, size=size, application=application)
    database.open()
    with closing(database):
        yield database


def fetch_rows(
    connection: Connection[Any], query: LiteralString, named: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, named).fetchall()


def fetch_row(
    connection: Connection[Any], query: LiteralString, named: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, named).fetchone()


# A standby behind a pooler that has changed over; a default isolation that was raised since the connection was made.
_OF_NO_USE: Final = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.SerializationFailure)


def _read_times(connection: Connection[Any]) -> None:
    """psycopg reads times in the ISO style only, and a role may have another. Poolers keep this setting per client."""
    if not (connection.info.parameter_status("DateStyle") or "ISO").startswith("ISO"):
        connection.execute("set datestyle = 'ISO, MDY'")


def is_between(connection: Connection[Any]) -> bool:
    """Whether a pooler is: it makes up the process number of its greeting; the server's own is another."""
    return session_pid(connection) != connection.info.backend_pid


def session_pid(connection: Connection[Any]) -> int:
    row = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])


class _KeptCursor(Cursor[Any]):
    """A kept plan is refused once a column has another type. It is asked again without one, and then the session ends:
    its other plans are refused too."""

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        try:
            return super().execute(query, params, **how)
        except psycopg.errors.FeatureNotSupported as error:
            if error.diag.source_function != "RevalidateCachedQuery":
                raise
            within = self.connection.info.transaction_status is not TransactionStatus.IDLE
            try:
                if within:
                    raise DatabaseDown(_short(error)) from error
                return super().execute(query, params, prepare=False)
            finally:
                self.connection.close()


def _configure(connection: Connection[Any], *, prepared: bool) -> None:
    """Once a connection. Claims rely on READ COMMITTED: `skip locked` meets no conflict there. Only where the default
    is another, each statement pays for a transaction that says so."""
    _read_times(connection)
    row = connection.execute("show default_transaction_isolation").fetchone()
    if row != ("read committed",):
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    if prepared and not is_between(connection):
        for name, value in KEPT_PLANS.items():
            connection.execute("select set_config(%s, %s, false)", [name, value])
        connection.prepare_threshold, connection.cursor_factory = 0, _KeptCursor
    for name in ("json", "jsonb"):
        connection.adapters.register_loader(name, RawJson)
    connection.adapters.register_loader("timestamptz", BoundedTime)
    # Its binary form is the same text: psycopg's loader of bytea gives it as bytes, in C.
    connection.adapters.register_loader("json", ByteaBinaryLoader)


class PrimaryOf(NamedTuple):
    """Which cluster, and how often a replica of it was promoted."""

    system: int
    timeline: int


class ReplacedPrimary(psycopg.OperationalError):
    """It accepts writes, and another one was promoted in its place: nobody fenced it."""


# By cluster: the highest timeline that this process has met. An old primary that comes back has a lower one; what is
# written there is lost, and what its table has open would be projected from a past that never happened.
_timelines: dict[int, int] = {}
_timelines_lock: Final = Lock()
_SERVER: Final = """
select (select system_identifier from pg_control_system()),
       ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
 where not pg_is_in_recovery()
"""


def meet(connection: Connection[Any]) -> PrimaryOf | None:
    """None: a standby, or a server that does not say."""
    try:
        row = connection.execute(_SERVER).fetchone()
    except psycopg.Error:
        return None
    if row is None:
        return None
    server = PrimaryOf(*row)
    with _timelines_lock:
        latest = _timelines[server.system] = max(server.timeline, _timelines.get(server.system, 0))
    if server.timeline < latest:
        raise ReplacedPrimary(
            f"{connection.info.host}:{connection.info.port} is on timeline {server.timeline} and was replaced:"
            f" {latest} was met before. Fence it, or restart if the promotion was undone"
        )
    return server


def meet_all(url: str) -> None:
    """Each host of the URL, in turn: a process that has just started knows of no promotion."""
    hosts = _hosts(conninfo_to_dict(plain_dsn(url)))
    for host, port in hosts if len(hosts) > 1 else ():
        with (
            suppress(psycopg.Error),
            psycopg.connect(
                plain_dsn(url), **_parameters(url, "outbox start", may_be_standby=False) | {"host": host, "port": port}
            ) as connection,
        ):
            meet(connection)


def _hosts(given: Mapping[str, object]) -> list[tuple[str, str]]:
    """None of them where the URL gives addresses beside names, or in place of them: libpq pairs the two by place."""
    if given.get("hostaddr"):
        return []
    hosts = str(given.get("host") or "").split(",")
    ports = str(given.get("port") or "").split(",")
    return list(zip(hosts, ports * len(hosts) if len(ports) == 1 else ports, strict=False))


def _asked_last(connection: Connection[Any], url: str, given: Mapping[str, Any]) -> dict[str, str]:
    """libpq would choose the same host again, of several."""
    hosts = _hosts({**conninfo_to_dict(url), **given})
    if len(hosts) < 2:
        return {}
    here = connection.info.host, str(connection.info.port)
    hosts.sort(key=lambda place: (place[0], place[1] or "5432") == here)
    return {"host": ",".join(host for host, _ in hosts), "port": ",".join(port for _, port in hosts)}


# Class 08 connection, 53 resources, 57P admin shutdown, 40 rollback, 55P03 lock timeout, 25006 a standby.
_PASSING = ("08", "53", "57P", "57014", "40", "55P03", "25006", "58")


def is_refusal(error: psycopg.Error) -> bool:
    """The server would not have it, and will not the next time: no outage, no lock."""
    return bool(error.sqlstate) and not (error.sqlstate or "").startswith(_PASSING)


class QueryCancelled(DatabaseDown):
    __doc__ = DatabaseDown.__doc__  # a statement's limit of time is over, which may have other reasons for the caller


@contextmanager
def translated() -> Iterator[None]:
    """psycopg's errors as ours: away (try again later) or not the schema that we know (a person must act)."""
    try:
        yield
    except PoolTimeout as error:
        raise DatabaseAway("no connection within the time limit") from error
    except psycopg.Error as error:
        if (kind := _kind_of(error)) is None:
            raise
        raise kind(_short(error)) from error


_OURS: Final = {"42501": NotPermitted, "55P03": LockHeld, "57014": QueryCancelled, "57P01": DatabaseAway}


def _kind_of(error: psycopg.Error) -> type[OutboxError] | None:
    state = error.sqlstate or ""
    if state in _OURS:
        return _OURS[state]
    if state.startswith("42"):
        return SchemaMismatch
    without_state = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return DatabaseDown if state.startswith(_PASSING) or (not state and without_state) else None


def _short(error: psycopg.Error) -> str:
    """The first line of the server's own words: they hold no connection string and no row."""
    primary = error.diag.message_primary
    return primary or (str(error).splitlines() or [type(error).__name__])[0][:200]


TIME_LIMIT_MS: Final = 3_000
# Estimates after a flood, or a filter that seems rare, tempt the planner into reading the whole table.
BY_INDEX: Final[Mapping[str, str]] = {"enable_seqscan": "off", "max_parallel_workers_per_gather": "0", "jit": "off"}


class ReadTooLong(DatabaseDown):
    """This query would read too many rows and was cancelled. Narrow it: by state, entity type or id, or by a shorter
    time (`--since`)."""


def plan_with(connection: Connection[Any], plans: Mapping[str, str]) -> None:
    """Planner settings until the end of the transaction."""
    for name, value in plans.items():
        connection.execute("select set_config(%s, %s, true)", [name, value])


@contextmanager
def bounded_read(
    database: Database, *, time_limit_ms: int = TIME_LIMIT_MS, plans: Mapping[str, str] | None = None
) -> Iterator[Connection[Any]]:
    """`plans`: planner settings for this read only."""
    try:
        with database.transaction(read_only=True, timeout_ms=time_limit_ms) as connection:
            plan_with(connection, plans or {})
            yield connection
    except QueryCancelled as error:
        raise ReadTooLong(f"stopped after {time_limit_ms / 1000:g} s") from error


class TopicStore:
    """The queries of one topic over one pool. Each method runs one of them, in a connection of its own."""

    _topic: ClassVar[str] = ""

    def __init_subclass__(cls, *, topic: str = "") -> None:
        cls._topic = topic or cls._topic

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sql = queries(self._topic)

    def _connection(self) -> AbstractContextManager[Connection[Any]]:
        return self._database.connection()

    def _typed(self, query: str, connection: Connection[Any]) -> LiteralString:
        """Where it names the type of `entity_id`, with that of this database."""
        sql = self._sql[query]
        return typed(sql, entity_id_type(connection)) if "{entity_id_type}" in sql else sql

    def _all(self, query: str, /, **named: Any) -> list[tuple[Any, ...]]:
        with self._connection() as connection:
            return connection.execute(self._typed(query, connection), named).fetchall()

    def _one(self, query: str, /, **named: Any) -> tuple[Any, ...] | None:
        with self._connection() as connection:
            return connection.execute(self._typed(query, connection), named).fetchone()

    def _value(self, query: str, /, **named: Any) -> Any:
        """The first column of the one row that there is; None where there is no row."""
        row = self._one(query, **named)
        return None if row is None else row[0]

    def _rows(self, query: str, /, **named: Any) -> list[dict[str, Any]]:
        with self._connection() as connection:
            return fetch_rows(connection, self._typed(query, connection), named)

    def _row(self, query: str, /, **named: Any) -> dict[str, Any] | None:
        with self._connection() as connection:
            return fetch_row(connection, self._sql[query], named)

    def _run(self, query: str, /, **named: Any) -> int:
        """How many rows it changed."""
        with self._connection() as connection:
            return connection.execute(self._typed(query, connection), named).rowcount


class BoundedStore(TopicStore):
    """Reads for people: each read has a limit of time, and changes nothing."""

    time_limit_ms: int = TIME_LIMIT_MS
    plans: Mapping[str, str] | None = None

    def _connection(self) -> AbstractContextManager[Connection[Any]]:
        return bounded_read(self._database, time_limit_ms=self.time_limit_ms, plans=self.plans)
