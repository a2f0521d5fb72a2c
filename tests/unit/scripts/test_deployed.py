"""scripts/deployed: what it keeps of a run, its images, and what it puts between real programs: names, quicker rules,
an altered page."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from outbox.config import VARIABLES
from tests.deployed.__main__ import main
from tests.deployed.alerting import ALTERED, REAL, Provocation, Seen, judged, quick
from tests.deployed.alerts_part import CHANGED
from tests.deployed.images import BUILT, STANDINS
from tests.deployed.newcomer import SERVERS, SETTINGS
from tests.deployed.record import Outcome, record, save
from tests.fixtures.deployment import ROOT, RULES, read_yaml
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
    """But ours, which are built, and that of Grafana, which only a registry has."""
    named = {POSTGRES_IMAGE, ELASTICSEARCH_IMAGE}
    for file in ("docker-compose.infra.yml", "docker-compose.kafka.yml"):
        named |= {service["image"] for service in read_yaml(ROOT / file)["services"].values() if "image" in service}
    for name, path in (("python", ROOT / "Dockerfile"), ("maven", ROOT / "deploy" / "compose" / "connect.Dockerfile")):
        [tag] = re.findall(rf"^ARG {name.upper()}=(\S+)$", path.read_text(), re.MULTILINE)
        named.add(f"{name}:{tag}")
    ours = ("outbox-projector:", "outbox-connect:", "grafana/")
    missing = {name for name in named - set(BUILT) if not name.startswith(ours)}
    assert not missing
    assert all((STANDINS / f"{stem}.Dockerfile").exists() for stem, _ in BUILT.values())


def test_without_an_engine_and_root_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.deployed.engine.ask", lambda *_, **__: "")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["docker", "--folder", str(tmp_path)]) == 3
    kept = json.loads((tmp_path / "results" / "docker.json").read_text())
    assert kept["word"] == "MISSING"
    assert "Docker engine" in kept["detail"]


def test_quick_rules_differ_only_in_their_durations() -> None:
    for path in RULES:
        after = quick(read_yaml(path))
        rules = [rule for group in after["groups"] for rule in group["rules"]]
        originals = [rule for group in read_yaml(path)["groups"] for rule in group["rules"]]
        without = re.compile(r"\[\w+\]|offset \w+")
        assert [without.sub("", rule["expr"]) for rule in rules] == [without.sub("", r["expr"]) for r in originals]
        assert all(rule["for"].endswith("ms") for rule in rules if "for" in rule)
    five = quick({"groups": [{"rules": [{"alert": "a", "for": "5m", "expr": "rate(b[1h] offset 2m) > 300"}]}]})
    assert five["groups"][0]["rules"] == [
        {"alert": "a", "for": "5000ms", "expr": "rate(b[60000ms] offset 2000ms) > 300"}
    ]


def test_an_alert_that_cannot_be_provoked_does_not_keep_the_others_from_being_tried(tmp_path: Path) -> None:
    held: list[str] = []

    class Manager(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            alert = {"labels": {"alertname": "OutboxDown", "severity": "critical"}}
            self.wfile.write(json.dumps([alert] * len(held)).encode())

        def log_message(self, *_: object) -> None:
            pass

    def refused() -> None:
        raise OSError("no such container")

    with HTTPServer(("127.0.0.1", 0), Manager) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        seen = Seen(f"http://127.0.0.1:{server.server_port}", tmp_path)
        steps = [
            Provocation({"OutboxPaused": REAL}, refused, refused, 0.1),
            Provocation({"OutboxDown": ALTERED}, lambda: held.append("one"), held.clear, 10),
        ]
        figures = seen.play(steps)
        seen.stop()
        server.shutdown()
    assert judged(figures) == ["OutboxPaused: no fired_seconds: OSError: no such container"]
    assert set(figures["OutboxDown"]) == {"how", "fired_seconds", "ended_seconds"}


def test_what_the_alerts_change_in_the_shipped_settings_has_names_that_there_are() -> None:
    assert set(CHANGED) <= set(VARIABLES)
    assert VARIABLES["OUTBOX_OUTAGE_POLICY"].default == CHANGED["OUTBOX_OUTAGE_POLICY"]


def test_the_readme_has_the_lines_that_a_newcomer_follows() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(SERVERS.findall(readme)) == 1
    assert set(dict(SETTINGS.findall(readme))) == {"DATABASE_URL", "ELASTIC_URL"}
