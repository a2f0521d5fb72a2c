"""The connector's configuration: what records depend on, what a running one may differ in, what its errors mean."""

import re
from dataclasses import replace

import pytest

from outbox.kafka import connector
from outbox.kafka.connector import ConnectorPlan
from outbox.kafka.connector_check import ConnectorCheck
from outbox.ports import Level

PLAN = ConnectorPlan("db.example", 5433, "app", "outbox_connector", "outbox_log")
RUNNING: dict[str, object] = {"connector": {"state": "RUNNING"}, "tasks": [{"id": 0, "state": "RUNNING"}]}


class Connect:
    """What a Connect worker would answer."""

    def __init__(self, found: dict[str, str] | None, status: dict[str, object] | None) -> None:
        self.found, self.state = found, status

    def configuration(self, name: str) -> dict[str, str] | None:
        return self.found

    def status(self, name: str) -> dict[str, object] | None:
        return self.state

    def is_open(self) -> bool:
        return False


def examined(found: dict[str, str] | None, status: dict[str, object] | None = None) -> list[tuple[Level, str, str]]:
    check = ConnectorCheck(Connect(found, status or RUNNING), PLAN)
    return [(finding.level, finding.detail, finding.remedy) for finding in check.examine()]


def test_the_predicate_and_the_list_of_tables_mean_the_log_and_no_other_table() -> None:
    made = connector.configuration(replace(PLAN, schema="out.box", prefix="o-1"))
    assert re.fullmatch(made["table.include.list"], "out.box.search_outbox_log")
    assert not re.fullmatch(made["table.include.list"], "outxbox.search_outbox_log")
    assert re.fullmatch(made["predicates.isLog.pattern"], "o-1.out.box.search_outbox_log")
    assert not re.fullmatch(made["predicates.isLog.pattern"], "__debezium-heartbeat.o-1")


def test_a_password_in_the_configuration_is_named_and_not_shown() -> None:
    found = examined(connector.configuration(PLAN) | {"database.password": "hunter2"})
    assert [level for level, *_ in found] == [Level.OK, Level.WARN, Level.OK]
    assert "hunter2" not in str(found)


TRACE = """org.apache.kafka.connect.errors.ConnectException: An exception occurred in the change event producer.
\tat io.debezium.pipeline.ErrorHandler.setProducerThrowable(ErrorHandler.java:67)
Caused by: org.postgresql.util.PSQLException: ERROR: {}
\tat org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:2733)
\t... 5 more
"""


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('publication "outbox_log" does not exist', "outbox migrate --log"),
        ('can no longer access replication slot "outbox_log"', "outbox verify"),
        ('replication slot "outbox_log" is active for PID 71', "Another connector"),
        ("something new", "log of the Connect worker"),
        ("RecordTooLargeException: The message is 40000000 bytes", "max.message.bytes"),
    ],
)
def test_a_failed_task_is_reported_with_its_innermost_cause_and_a_remedy(said: str, remedy: str) -> None:
    task = {"id": 0, "state": "FAILED", "trace": TRACE.format(said)}
    found = examined(connector.configuration(PLAN), {"connector": {"state": "RUNNING"}, "tasks": [task]})
    level, detail, told = found[0]
    assert level is Level.BAD
    assert "PSQLException" in detail
    assert "ErrorHandler" not in detail
    assert remedy in told


def test_every_value_is_text_the_key_is_the_entity_and_the_password_a_reference_to_a_file() -> None:
    made = connector.configuration(replace(PLAN, secrets="/run/secrets/outbox"))
    assert all(isinstance(value, str) and value for value in made.values())
    assert [name for name, value in made.items() if "{" in value] == ["database.password"]
    assert made["database.password"] == "${file:/run/secrets/outbox:password}"
    assert made["transforms.outbox.table.field.event.key"] == "entity_key"
    assert made["transforms.outbox.table.field.event.payload"] == "payload"
    assert {made[f"{part}.converter"] for part in ("key", "value", "header")} == {
        "org.apache.kafka.connect.storage.StringConverter"
    }


@pytest.mark.parametrize(("time", "ours"), [("heartbeat.interval.ms", "10000"), ("poll.interval.ms", "50")])
def test_a_setting_that_records_depend_on_is_a_problem_and_a_time_is_not(time: str, ours: str) -> None:
    changed = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", time: "60000"}
    found = examined(connector.configuration(PLAN) | changed)
    assert [level for level, *_ in found] == [Level.OK, Level.WARN, Level.BAD]
    assert f"{time} is 60000, ours is {ours}" in found[1][1]


def test_no_connector_of_that_name_is_a_problem_with_a_remedy() -> None:
    ((level, detail, remedy),) = examined(None)
    assert (level, detail) == (Level.BAD, "there is no connector outbox-log")
    assert "outbox kafka connector" in remedy
