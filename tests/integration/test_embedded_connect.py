"""An embedded Kafka Connect with Debezium: what is inserted into a published table arrives as a record."""

import json

import psycopg
import pytest

from outbox.embedded.connect_api import ConnectApi
from outbox.embedded.errors import ConnectorRefused
from outbox.store.schema.migrate import migrate
from tests.fixtures.connect import Capture, debezium_source
from tests.fixtures.deployment import DEPLOY
from tests.fixtures.kafka import KafkaDesk
from tests.fixtures.waiting import eventually

JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false"}


@pytest.mark.slow
def test_a_row_inserted_into_a_published_table_arrives_as_a_record(
    logical_database: str, capture: Capture, kafka: KafkaDesk
) -> None:
    with psycopg.connect(logical_database, autocommit=True) as connection:
        connection.execute("create table captured (id int primary key, text text)")
        connection.execute("create publication captured for table captured with (publish = 'insert')")
        prefix = capture_prefix(logical_database)
        topic = kafka.create_topic(f"{prefix}.public.captured", 1)
        capture(
            {
                "topic.prefix": prefix,
                "publication.name": "captured",
                "publication.autocreate.mode": "disabled",
                "table.include.list": "public.captured",
                "snapshot.mode": "no_data",
                **JSON,
            }
        )
        connection.execute("insert into captured values (17, 'brewed at 1.10')")
    try:
        eventually(lambda: kafka.ends(topic)[0] == 1, what="the record")
        (message,) = kafka.read(topic)
        assert json.loads(message.value() or b"")["after"] == {"id": 17, "text": "brewed at 1.10"}
    finally:
        kafka.delete_topic(topic)


def capture_prefix(database_url: str) -> str:
    return debezium_source(database_url)["database.dbname"]


@pytest.mark.slow
def test_a_configuration_that_cannot_work_is_refused_with_its_reason(connect_url: str, logical_database: str) -> None:
    wrong = {**debezium_source(logical_database), "database.password": "wrong", "topic.prefix": "wrong"}
    with pytest.raises(ConnectorRefused, match="authentication failed") as refused:
        ConnectApi(connect_url).put_connector("wrong", wrong)
    assert ConnectApi(connect_url).states("wrong") == []
    assert refused.value.exit_code == 78


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
