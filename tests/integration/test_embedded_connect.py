"""An embedded Kafka Connect with Debezium: what is inserted into a published table arrives as a record."""

import psycopg

from outbox.store.schema.migrate import migrate
from tests.fixtures.deployment import DEPLOY


def test_the_login_that_compose_makes_for_the_connector_reads_the_log_and_nothing_else(logical_database: str) -> None:
    migrate(logical_database, log=True)
    script = (DEPLOY / "compose" / "connector-login.sql").read_bytes()
    ask = "select rolreplication, has_table_privilege(%(who)s, 'search_outbox_log', 'select'),"
    ask += " has_table_privilege(%(who)s, 'search_outbox_events', 'select'),"
    ask += " has_table_privilege('search_outbox_projector', 'search_outbox_events', 'insert')"
    ask += " from pg_roles where rolname = %(who)s"
    with psycopg.connect(logical_database) as connection, connection.transaction(force_rollback=True):
        connection.execute(script)
        connection.execute(script)  # it may run after every migration
        assert connection.execute(ask, {"who": "outbox_connector"}).fetchone() == (True, True, False, True)
