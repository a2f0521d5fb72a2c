"""Units and supervisor programs: they stop in time, hold no secret, and pause in an outage."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from outbox.cli.menu import app
from outbox.config.load import known_names
from tests.fixtures.deployment import DEPLOY, settings_in, shutdown_grace_seconds, unit_file

SYSTEMD = DEPLOY / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
SUPERVISOR = unit_file(DEPLOY / "supervisor" / "outbox.conf")
README = (DEPLOY / "README.md").read_text()
INSTALLING = README.partition("```sh systemd\n")[2].partition("```")[0]
STOP_SECONDS = shutdown_grace_seconds() + 10
GRACE = str(shutdown_grace_seconds())


def value(path: Path, section: str, key: str) -> list[str]:
    return [found for name, found in unit_file(path)[section] if name == key]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_waits_for_the_grace_and_ten_seconds_more(unit: Path) -> None:
    assert value(unit, "Service", "TimeoutStopSec") == [str(STOP_SECONDS)]
    assert settings_in(unit_file(unit)["Service"])["OUTBOX_SHUTDOWN_GRACE_SECONDS"] == GRACE


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_secrets_are_credentials_and_in_no_environment(unit: Path) -> None:
    section = unit_file(unit)["Service"]
    loaded = {found.partition(":")[0] for key, found in section if key == "LoadCredential"}
    given = settings_in(section)
    assert loaded == {"database_url"}
    assert {text.removeprefix("%d/") for text in given.values() if "%d/" in text} == loaded
    # What rotates is read in place (tests/unit/deploy/test_parts.py).
    assert {name for name, text in given.items() if text.startswith(("%d/", "/etc/outbox/"))} == {
        name for name in given if name.endswith("_FILE")
    }
    assert not {"DATABASE_URL", "ELASTIC_API_KEY", "ELASTIC_PASSWORD"} & set(given)


@pytest.mark.parametrize("unit", [*UNITS, *SYSTEMD.glob("*.d/*.conf")], ids=lambda unit: unit.name)
def test_units_set_only_names_that_there_are(unit: Path) -> None:
    assert set(settings_in(unit_file(unit)["Service"])) <= set(known_names())


def test_the_projector_speaks_notify_is_watched_and_pauses_in_an_outage_with_the_reason_beside_it() -> None:
    unit = SYSTEMD / "outbox-projector@.service"
    section = dict(unit_file(unit)["Service"])
    assert section["Type"] == "notify"
    assert section["WatchdogSec"] == "30s"
    assert section["TimeoutStartSec"] == "60", "READY needs no server: a start that takes longer hangs"
    assert section["RestartPreventExitStatus"] == "78"
    assert settings_in(unit_file(unit)["Service"])["OUTBOX_OUTAGE_POLICY"] == "pause"
    lines = unit.read_text().splitlines()
    assert lines[lines.index("Environment=OUTBOX_OUTAGE_POLICY=pause") - 1].startswith("#")


def commands() -> list[str]:
    """What the deployment files start, without the program's path."""
    started = [found for unit in UNITS for found in value(unit, "Service", "ExecStart")]
    started += [dict(told)["command"] for told in SUPERVISOR.values()]
    return sorted({line.removeprefix("/opt/outbox/bin/outbox ") for line in started})


@pytest.mark.parametrize("command", commands())
def test_what_is_started_is_a_command_with_options_that_there_are(command: str) -> None:
    name, *options = command.split()
    told = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert told.exit_code == 0
    assert all(option in told.output for option in options if option.startswith("--"))


@pytest.mark.parametrize("program", SUPERVISOR)
def test_supervisor_programs_stop_in_time_as_a_group_and_start_again(program: str) -> None:
    told = dict(SUPERVISOR[program])
    assert told["stopwaitsecs"] == str(STOP_SECONDS)
    assert (told["stopasgroup"], told["killasgroup"], told["autorestart"]) == ("true", "true", "true")
    assert int(told["numprocs"]) >= 1
    assert ("%(process_num)d" in told["process_name"]) == (int(told["numprocs"]) > 1)


@pytest.mark.parametrize("program", SUPERVISOR)
def test_supervisor_programs_set_only_names_that_there_are(program: str) -> None:
    told = dict(SUPERVISOR[program])
    given = dict(pair.split("=", 1) for pair in told["environment"].split(","))
    assert set(given) <= set(known_names())
    assert given["OUTBOX_SHUTDOWN_GRACE_SECONDS"] == f'"{GRACE}"'
    assert given.get("OUTBOX_OUTAGE_POLICY") == ('"pause"' if told["command"].endswith(" run") else None)
