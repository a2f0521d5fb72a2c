"""Each part of a deployment has a secret, a database role and a key of its own; what rotates is read in place."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from outbox.config.connections import ElasticSettings
from outbox.sink.client import Credentials
from tests.fixtures.deployment import DEPLOY, ROOT, read_all_yaml, read_yaml, settings_in, unit_file
from tests.fixtures.kustomize import Resource, build, containers, pod_spec

KUBERNETES = DEPLOY / "kubernetes"
SYSTEMD = DEPLOY / "systemd"
# The role of each part's work (docs/security.md). The owner is a site's own: any name but these.
ROLE = {
    "migrate": "owner",
    "projector": "search_outbox_projector",
    "console": "search_outbox_operator",
    "operator": "search_outbox_operator",
    "scaler": "search_outbox_reader",
    "sample": "search_outbox_producer",
}
SECRETS: dict[str, Any] = {each["metadata"]["name"]: each for each in read_all_yaml(KUBERNETES / "secret.example.yaml")}
PRODUCTION = [*build(KUBERNETES / "overlays" / "production"), *build(KUBERNETES / "migrate")]
PODS = [resource for resource in PRODUCTION if pod_spec(resource)]
COMPOSE: dict[str, Any] = read_yaml(ROOT / "docker-compose.infra.yml")["services"]
UNITS = {path.name: unit_file(path)["Service"] for path in sorted(SYSTEMD.glob("*.service"))}
PART_OF_UNIT = {
    "outbox-migrate.service": "migrate",
    "outbox-projector@.service": "projector",
    "outbox-console.service": "console",
    "outbox-prune.service": "operator",
}
SUPERVISOR = {name: dict(told) for name, told in unit_file(DEPLOY / "supervisor" / "outbox.conf").items()}


def role_in(url: str) -> str:
    user = urlsplit(url).username or ""
    return user if user.startswith("search_outbox_") else "owner"


def part_of(resource: Resource) -> str:
    return str(resource["metadata"]["labels"]["app.kubernetes.io/component"])


# Kubernetes


def test_every_secret_holds_the_login_of_its_own_part() -> None:
    logins = {
        name.removeprefix("outbox-"): role_in(each["stringData"]["database_url"]) for name, each in SECRETS.items()
    }
    assert logins == {part: ROLE[part] for part in ("migrate", "projector", "console", "scaler")}


@pytest.mark.parametrize("resource", PODS, ids=part_of)
def test_a_pod_mounts_its_own_secret_and_uses_all_that_is_in_it(resource: Resource) -> None:
    spec = pod_spec(resource)
    assert spec is not None
    mounted = [volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume]
    assert mounted == [f"outbox-{part_of(resource)}"]
    [container] = containers(resource)
    shared = next(r["data"] for r in PRODUCTION if r["kind"] == "ConfigMap") if "envFrom" in container else {}
    given = {**shared, **{v["name"]: v.get("value", "") for v in container.get("env", [])}}
    used = {Path(value).name for value in given.values() if value.startswith("/run/secrets/outbox/")}
    assert used == set(SECRETS[mounted[0]]["stringData"])


@pytest.mark.parametrize("resource", PODS, ids=part_of)
def test_a_changed_secret_reaches_the_running_pod(resource: Resource) -> None:
    """Kubernetes never updates a file that is mounted by subPath, nor an environment variable."""
    [container] = containers(resource)
    assert not [mount for mount in container["volumeMounts"] if "subPath" in mount]
    assert "secretKeyRef" not in str(container)
    assert "secretRef" not in str(container)


def test_a_key_that_kubernetes_swaps_is_used_from_the_next_request_on(tmp_path: Path) -> None:
    """As the kubelet does it: the file is a link through `..data`, which is replaced by one rename."""
    for version, key in (("..1", "old"), ("..2", "new")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "elastic_api_key").write_text(f"{key}\n")
    (tmp_path / "..data").symlink_to("..1")
    file = tmp_path / "elastic_api_key"
    file.symlink_to("..data/elastic_api_key")
    credentials = Credentials(ElasticSettings(api_key="old", api_key_file=file))
    assert credentials.header() == "ApiKey old"
    (tmp_path / "..tmp").symlink_to("..2")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    assert credentials.header() == "ApiKey new"


# systemd and supervisor


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_is_given_the_files_of_its_own_part(name: str) -> None:
    part = PART_OF_UNIT[name]
    loaded = [value.partition(":")[2] for key, value in UNITS[name] if key == "LoadCredential"]
    assert loaded == [f"/etc/outbox/{part}/database_url"]
    dropped = [unit_file(path)["Service"] for path in (SYSTEMD / f"{name}.d").glob("*.conf")]
    paths = [
        value for section in (UNITS[name], *dropped) for value in settings_in(section).values() if "/etc/" in value
    ]
    assert {str(Path(path).parent) for path in paths} <= {f"/etc/outbox/{part}"}


@pytest.mark.parametrize("name", UNITS)
def test_what_rotates_is_read_in_place_and_not_as_a_credential(name: str) -> None:
    """LoadCredential makes a copy when the unit starts: a new key or a removed token would not count."""
    dropped = (SYSTEMD / f"{name}.d").glob("*.conf")
    sections = [UNITS[name], *(unit_file(path)["Service"] for path in dropped)]
    rotating = {
        setting: value
        for section in sections
        for setting, value in settings_in(section).items()
        if setting in ("ELASTIC_API_KEY_FILE", "OUTBOX_CONSOLE_TOKENS_FILE")
    }
    assert all(value.startswith("/etc/outbox/") for value in rotating.values())
    groups = [value for key, value in UNITS[name] if key == "SupplementaryGroups"]
    assert groups == ([f"outbox-{PART_OF_UNIT[name]}-secrets"] if rotating else [])


@pytest.mark.parametrize("name", SUPERVISOR)
def test_a_supervised_program_runs_as_its_own_user_with_its_own_files(name: str) -> None:
    told = SUPERVISOR[name]
    part = "console" if told["command"].endswith(" console") else "projector"
    assert told["user"] == f"outbox-{part}"
    given = dict(pair.split("=", 1) for pair in told["environment"].split(","))
    files = [value.strip('"') for key, value in given.items() if key.endswith("_FILE")]
    assert {str(Path(file).parent) for file in files} == {f"/etc/outbox/{part}"}


# Compose


@pytest.mark.parametrize("name", ["migrate", "projector", "console"])
def test_a_service_logs_in_as_its_own_role(name: str) -> None:
    assert role_in(COMPOSE[name]["environment"]["DATABASE_URL"]) == ROLE[name]
