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


@pytest.mark.parametrize("file", ["docker-compose.infra.yml", "docker-compose.kafka.yml"])
def test_the_file_fits_the_schema_of_compose(file: str) -> None:
    """`docker compose config` where the client is; this everywhere."""
    schemas = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    [schema] = [each for each in schemas.iterdir() if each.name == "compose-spec.json"]
    jsonschema.validate(read_yaml(ROOT / file), json.loads(schema.read_text()))


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


@pytest.mark.parametrize("name", APP)
def test_our_containers_are_read_only_powerless_and_stop_in_time(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["stop_grace_period"] == f"{shutdown_grace_seconds() + 10}s"
    assert service["environment"]["OUTBOX_SHUTDOWN_GRACE_SECONDS"] == str(shutdown_grace_seconds())
    assert set(service["environment"]) <= set(known_names())


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


def test_no_alert_waits_for_a_projector_that_need_not_run() -> None:
    """`up` of what is in no profile that was asked for, or is yours to start, would be 0 for ever."""
    jobs = {job["job_name"]: job for job in read_yaml(ROOT / "deploy" / "compose" / "prometheus.yml")["scrape_configs"]}
    rules = (ROOT / "deploy" / "prometheus" / "rules" / "alerts.yml").read_text()
    watched = set(re.findall(r'up{job="([^"]+)"}', rules))
    assert watched == {"outbox-projector"}
    for name in watched:
        assert "static_configs" not in jobs[name]
        assert {found for sd in jobs[name]["dns_sd_configs"] for found in sd["names"]} <= set(SERVICES)
