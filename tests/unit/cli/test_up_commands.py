"""What `outbox up` prints for another terminal: `outbox` is found there, wherever it was installed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outbox.app.up import Addresses
from outbox.cli.up import commands_to_try, on_the_path

WHERE = Addresses(
    database_url="postgresql://outbox:***@127.0.0.1:1/postgres",
    database_url_file="/a folder/database-url",
    elastic_url="http://127.0.0.1:2",
    index="search-index",
    metrics_url="",
    console_url="",
    logs={},
    sample=True,
    search_server="Elasticsearch",
    kafka="",
    connect_url="",
    connect_username="",
    connect_password_file="",
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A virtual environment with `outbox` in it, in a folder with a blank; nothing else is on the PATH."""
    programs = tmp_path / "my environment" / "bin"
    programs.mkdir(parents=True)
    for name in ("outbox", "activate"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(programs.parent))
    monkeypatch.setenv("PATH", str(tmp_path / "usual"))
    return programs


def test_a_virtual_environment_is_to_be_activated(environment: Path) -> None:
    assert on_the_path() == [f". '{environment / 'activate'}'"]


def test_with_kafka_the_commands_reach_connect_without_showing_its_password(environment: Path) -> None:
    where = replace(WHERE, kafka="127.0.0.1:3", connect_url="http://127.0.0.1:4", connect_username="outbox")
    told = "\n".join(commands_to_try(replace(where, connect_password_file="/a folder/connect-password")))
    assert "export OUTBOX_SOURCE=kafka KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:3" in told
    login = "KAFKA_CONNECT_USERNAME=outbox KAFKA_CONNECT_PASSWORD_FILE='/a folder/connect-password'"
    assert f"export KAFKA_CONNECT_URL=http://127.0.0.1:4 {login}" in told
    assert not [line for line in commands_to_try(WHERE) if "KAFKA" in line]
