"""Where the connector's topic comes from: the flag, else the settings, which daemons read too."""

import json

import pytest
from typer.testing import CliRunner

from outbox.cli.menu import app
from outbox.config import load_settings
from outbox.kafka.connector_settings import connector_plan

DATABASE = "postgresql://someone@db.example/app"


@pytest.fixture(autouse=True)
def _database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", DATABASE)


def test_the_topic_of_the_plan_is_the_one_that_workers_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connector_plan(load_settings()).topic == load_settings().kafka.topic
    monkeypatch.setenv("KAFKA_TOPIC", "events.of-a-shop")
    assert connector_plan(load_settings()).topic == "events.of-a-shop"
    assert connector_plan(load_settings(), topic="another").topic == "another"


@pytest.mark.parametrize(("flags", "topic"), [([], "events.of-a-shop"), (["--topic", "another"], "another")])
def test_the_command_prints_it(monkeypatch: pytest.MonkeyPatch, flags: list[str], topic: str) -> None:
    monkeypatch.setenv("KAFKA_TOPIC", "events.of-a-shop")
    shown = CliRunner().invoke(app, ["kafka", "connector", *flags])
    assert shown.exit_code == 0, shown.output
    assert topic in json.dumps(json.loads(shown.stdout))


def test_a_topic_that_cannot_be_one_is_refused_by_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_TOPIC", "no topic!")
    shown = CliRunner().invoke(app, ["kafka", "connector"])
    assert shown.exit_code != 0
