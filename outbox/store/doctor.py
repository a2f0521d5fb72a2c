"""Reads the database for `outbox doctor`: what is there, not whether that is good. Changes nothing."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from psycopg import Connection, sql

from outbox.errors import DatabaseDown
from outbox.policy.coverage import Coverage
from outbox.policy.schema import SchemaStatus
from outbox.ports import EventLogFacts, Pooled, SlotFacts
from outbox.store import plans
from outbox.store.attach import installed
from outbox.store.coverage import PostgresCoverage
from outbox.store.documents import asking_for
from outbox.store.events import last_version
from outbox.store.filters import entity_id_type, typed
from outbox.store.pool import BoundedStore, Database, connect, fetch_rows, is_between, translated
from outbox.store.pooler import shares_sessions
from outbox.store.queries import queries
from outbox.store.schema.state import read_status
from outbox.store.view_shape import NEEDED_COLUMNS, read_shape

SAMPLE_ROWS: Final = 1_000
SAMPLE_LOOKUPS: Final = 50
SAMPLE_ROLES: Final = 5

# What each kind of work does with the tables; enough to tell them apart (sql/0013_roles.sql has all of it).
NEEDED_RIGHTS: Final[Mapping[str, Mapping[str, str]]] = {
    "projector": {
        "search_outbox_events": "SELECT UPDATE DELETE",
        "search_outbox_attempts": "INSERT",
        "search_outbox_leases": "SELECT INSERT UPDATE DELETE",
        "search_outbox_workers": "SELECT INSERT UPDATE DELETE",
        "search_outbox_controls": "SELECT",
        "search_outbox_quotas": "SELECT INSERT UPDATE",
        "search_outbox_rollup": "SELECT INSERT UPDATE",
        "search_outbox_audit": "INSERT",
        "search_outbox_webhook_deliveries": "SELECT INSERT UPDATE",
        "search_outbox_migrations": "SELECT",
    },
    "operator": {
        "search_outbox_events": "SELECT INSERT UPDATE",
        "search_outbox_audit": "SELECT INSERT",
        "search_outbox_controls": "SELECT INSERT UPDATE DELETE",
        "search_outbox_replays": "SELECT INSERT UPDATE",
        "search_outbox_workers": "SELECT",
    },
    "reader": {"search_outbox_events": "SELECT", "search_outbox_audit": "SELECT", "search_outbox_workers": "SELECT"},
}

Row = Mapping[str, Any]


def require_primary(url: str, application: str) -> None:
    """Raises DatabaseDown. Where a server answers that accepts no writes, the error names it."""
    try:
        connect(url, application=application).close()
    except DatabaseDown as error:
        with connect(url, application=application, may_be_standby=True) as connection, translated():
            about = fetch_rows(connection, queries("examination")["server"])[0]
        detail = f"only {about['address']} answers, {about['serves_as']}: it accepts no writes"
        raise DatabaseDown(detail) from error


class PostgresDoctor(BoundedStore, topic="examination"):
    time_limit_ms = 5_000

    def __init__(self, database: Database, view: str, direct_url: str) -> None:
        super().__init__(database)
        self._view = view
        self._direct_url = direct_url

    def server(self) -> Row:
        """Without our own time limit, which would show in place of the role's."""
        with self._database.connection() as connection:
            return fetch_rows(connection, self._sql["server"])[0]

    def speed(self) -> Row:
        return self._rows("speed")[0]

    def pooler(self) -> Pooled:
        with self._database.connection() as connection:
            between = is_between(connection)
        return Pooled(between, self._direct_is_shared())

    def _direct_is_shared(self) -> bool | None:
        """None where it does not answer."""
        reach = partial(connect, self._direct_url, application="outbox doctor")
        try:
            with reach() as connection, translated():
                return shares_sessions(connection, reach)
        except DatabaseDown:
            return None

    def schema(self) -> SchemaStatus:
        with self._database.connection() as connection:
            return read_status(connection)

    def lacking_privileges(self) -> Sequence[Row]:
        wanted = [("projector", self._view, "SELECT")]
        for work, tables in NEEDED_RIGHTS.items():
            wanted += [(work, table, right) for table, rights in tables.items() for right in rights.split()]
        works, relations, privileges = (list(column) for column in zip(*wanted, strict=True))
        return self._rows("lacking_privileges", works=works, relations=relations, privileges=privileges)

    def missing_roles(self) -> Sequence[str]:
        return [row["role"] for row in self._rows("missing_roles")]

    def view_unreadable(self) -> Sequence[str]:
        return [row["role"] for row in self._rows("view_unreadable", view=self._view)]

    def may_create(self) -> Sequence[Row]:
        """Logins that may put functions into our schema, though nobody need trust them."""
        return self._rows("may_create", most=SAMPLE_ROLES)

    def view_columns(self) -> Mapping[str, str]:
        """The columns of the view with their types; empty where there is no view."""
        with self._connection() as connection:
            return read_shape(connection, self._view).columns

    def coverage(self) -> Coverage:
        return PostgresCoverage(self._database, self._view).read()

    def unsupported_ids(self) -> str | None:
        """The type of the view's ids, where they cannot name documents."""
        with self._connection() as connection:
            ids = read_shape(connection, self._view).id
        return None if ids.supported else ids.declared

    def attachments(self) -> Sequence[installed.AttachmentFacts]:
        with self._connection() as connection:
            return installed.read_facts(connection, self._view)

    def event_log(self, slot: str) -> EventLogFacts | None:
        """None where there is no such table."""
        asked = queries("event_log")
        with self._connection() as connection:
            about = dict(fetch_rows(connection, asked["installation"])[0])
            if not about.pop("has_table"):
                return None
            slots = fetch_rows(connection, asked["slot"], {"slot": slot})
            days = fetch_rows(connection, asked["days"], {"most": SAMPLE_ROWS})[0]
        rows = days["in_default"]
        return EventLogFacts(
            **about,
            days_ahead=days["ahead"],
            oldest_day=days["oldest"],
            in_default=rows,
            in_default_shown=f"{rows:,} or more" if rows == SAMPLE_ROWS else f"{rows:,}",
            slot=SlotFacts(**slots[0]) if slots else None,
        )

    def needs_the_view(self) -> bool:
        """Whether one of the first open events has no payload of its own."""
        return bool(self._value("looked_up_open", most=SAMPLE_ROWS))

    def last_version(self) -> int:
        return last_version(self._database)

    def version_known(self, entity_type: str, entity_id: str, version: int) -> bool:
        if version <= self.last_version():
            return True
        named = {"entity_type": entity_type, "entity_id": entity_id, "version": version}
        with self._connection() as connection:
            known = typed(queries("workers")["version_known"], entity_id_type(connection))
            return connection.execute(known, named).fetchone() == (True,)

    def declared(self) -> Sequence[Row]:
        return self._rows("declared")

    def sequence_behind(self) -> tuple[int, int] | None:
        row = self._rows("sequence_behind")[0]
        return None if row["given_out"] is None or row["given_out"] <= row["last"] else (row["last"], row["given_out"])

    def most_bytes(self) -> int:
        return int(self._value("most_bytes"))

    def version_raised(self) -> Row | None:
        return self._row("version_raised", most=SAMPLE_ROWS)

    def equal_versions(self) -> Sequence[Row]:
        return self._rows("equal_versions", most=SAMPLE_ROWS)

    def done_lately(self) -> Sequence[Row]:
        return self._rows("done_lately", most=SAMPLE_ROWS)

    def lookup_scans(self) -> Sequence[Row]:
        """Tables that a lookup of a batch reads as a whole, by PostgreSQL's own plan, with their number of rows."""
        with self._connection() as connection:
            shape = read_shape(connection, self._view)
            if not (shape.columns.keys() >= NEEDED_COLUMNS and shape.id.supported):
                return []
            ids = [pair for pair in self._sample(connection) if shape.id.names(pair[1])]
            look_up = shape.query(queries("documents")["look_up"])
            return plans.whole_reads(connection, look_up, asking_for(ids, 0)) if ids else []

    def _sample(self, connection: Connection[Any]) -> list[tuple[str, str]]:
        most = {"most": SAMPLE_LOOKUPS}
        rows = connection.execute(self._sql["sample_of_entities"], most).fetchall()
        if not rows:
            view = sql.Identifier(*self._view.split("."))
            rows = connection.execute(sql.SQL(self._sql["sample_of_view"]).format(view=view), most).fetchall()
        return [(row[0], row[1]) for row in rows]
