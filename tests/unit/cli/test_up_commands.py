"""What `outbox up` prints for another terminal: `outbox` is found there, wherever it was installed."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outbox.app.up import Addresses
from outbox.cli.up import commands_to_try, on_the_path, search

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


def test_one_that_is_active_here_is_not_active_in_a_fresh_terminal(
    environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{environment}:{tmp_path / 'usual'}")
    assert on_the_path() == [f". '{environment / 'activate'}'"]


def test_a_program_that_is_linked_into_a_folder_of_the_path_needs_nothing(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual" / "outbox").symlink_to(environment / "outbox")
    assert on_the_path() == []


def test_another_outbox_on_the_path_is_not_taken_for_this_one(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual" / "outbox").write_text("#!/bin/sh\n")
    (tmp_path / "usual" / "outbox").chmod(0o755)
    assert on_the_path() == [f". '{environment / 'activate'}'"]


def test_a_python_without_activation_has_its_folder_put_on_the_path(environment: Path) -> None:
    (environment / "activate").unlink()
    assert on_the_path() == [f"export PATH='{environment}':$PATH"]


def test_paths_with_blanks_are_quoted(environment: Path) -> None:
    assert "export DATABASE_URL_FILE='/a folder/database-url'" in commands_to_try(WHERE)


def test_with_kafka_the_commands_reach_connect_without_showing_its_password(environment: Path) -> None:
    where = replace(WHERE, kafka="127.0.0.1:3", connect_url="http://127.0.0.1:4", connect_username="outbox")
    told = "\n".join(commands_to_try(replace(where, connect_password_file="/a folder/connect-password")))
    assert "export OUTBOX_SOURCE=kafka KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:3" in told
    login = "KAFKA_CONNECT_USERNAME=outbox KAFKA_CONNECT_PASSWORD_FILE='/a folder/connect-password'"
    assert f"export KAFKA_CONNECT_URL=http://127.0.0.1:4 {login}" in told
    assert not [line for line in commands_to_try(WHERE) if "KAFKA" in line]


@pytest.mark.parametrize(("variable", "option"), [("http_proxy", " --noproxy '*'"), ("no_proxy", "")])
def test_the_search_goes_past_a_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str, option: str
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert search(WHERE).startswith(f"curl -s{option} 'http://127.0.0.1:2/search-index/")
