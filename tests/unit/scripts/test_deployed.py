"""scripts/deployed: what it keeps of a run, and that it has an image for every service that the compose files start."""

import json
import re
from pathlib import Path

import pytest

from tests.deployed.__main__ import PARTS, main
from tests.deployed.images import BUILT, STANDINS
from tests.deployed.record import Outcome, record, save
from tests.deployed.shell import DeploymentFailed, run
from tests.deployed.systemd_part import SECRETS
from tests.fixtures.deployment import DEPLOY, ROOT, read_yaml
from tests.fixtures.servers import ELASTICSEARCH_IMAGE, POSTGRES_IMAGE


def outcome(part: str, word: str = "passed", commit: str = "abc1234") -> Outcome:
    return Outcome(part, "2026-11-19T12:00:00+00:00", commit, word)


def test_a_part_that_was_not_run_keeps_its_entry(tmp_path: Path) -> None:
    path, results = tmp_path / "deployed.json", tmp_path / "results"
    for made in (outcome("docker"), outcome("systemd")):
        save(made, results)
    record(results, path)
    for made in (outcome("docker", commit="def5678"), outcome("systemd", "MISSING")):
        save(made, results)
    record(results, path)
    kept = json.loads(path.read_text())
    assert {part: entry["commit"] for part, entry in kept.items()} == {"docker": "def5678", "systemd": "abc1234"}


def test_every_image_of_the_compose_files_has_a_stand_in() -> None:
    """But ours, which is built, and that of Grafana, which only a registry has."""
    named = {POSTGRES_IMAGE, ELASTICSEARCH_IMAGE}
    for file in ("docker-compose.infra.yml", "docker-compose.kafka.yml"):
        named |= {service["image"] for service in read_yaml(ROOT / file)["services"].values() if "image" in service}
    [python] = re.findall(r"^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    named.add(f"python:{python}")
    missing = {name for name in named - set(BUILT) if not name.startswith(("outbox-projector:", "grafana/"))}
    assert not missing
    assert all((STANDINS / f"{stem}.Dockerfile").exists() for stem, _ in BUILT.values())


def test_every_secret_of_the_readmes_block_is_given() -> None:
    block = (DEPLOY / "README.md").read_text().partition("```sh systemd\n")[2].partition("```")[0]
    assert set(re.findall(r"/dev/stdin /etc/outbox/(\S+)", block)) == set(SECRETS)


def test_the_help_names_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert all(part in shown for part in PARTS)


def test_without_an_engine_and_root_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.deployed.engine.ask", lambda *_, **__: "")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["docker", "--folder", str(tmp_path)]) == 3
    kept = json.loads((tmp_path / "results" / "docker.json").read_text())
    assert kept["word"] == "MISSING"
    assert "Docker engine" in kept["detail"]


def test_an_engine_without_compose_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.deployed.engine.ask", lambda *words, **_: "28" if words[1] == "info" else "")
    assert main(["docker", "--folder", str(tmp_path)]) == 3
    assert "compose" in json.loads((tmp_path / "results" / "docker.json").read_text())["detail"]


def test_a_command_that_hangs_ends_at_its_limit() -> None:
    with pytest.raises(DeploymentFailed, match="not done within"):
        run("sleep", "60", limit=0.2)
