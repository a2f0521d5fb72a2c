"""The deployment files, judged by the programs that will read them: promtool and systemd-analyze."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.fixtures.deployment import DEPLOY, PROMETHEUS, RULES, dashboards, queries

RULE_TESTS = sorted((PROMETHEUS / "tests").glob("*.yml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
# systemd-analyze's scale goes from 0 (locked away) to 10.
WORST_SCORE = 2.0


def told_by(*argv: str | Path, within: float = 300.0) -> str:
    """What the program says; it fails the test when the program is missing or not content."""
    ended = subprocess.run([str(part) for part in argv], capture_output=True, text=True, timeout=within, check=False)
    assert ended.returncode == 0, f"{argv[0]} left with {ended.returncode}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout + ended.stderr


def test_promtool_accepts_the_rules() -> None:
    assert "FAILED" not in told_by("promtool", "check", "rules", *RULES)


@pytest.mark.parametrize("cases", RULE_TESTS, ids=lambda path: path.stem)
def test_every_alert_fires_and_is_silent_as_its_tests_say(cases: Path) -> None:
    assert "SUCCESS" in told_by("promtool", "test", "rules", cases)


def test_promtool_accepts_the_scrape_example() -> None:
    assert "SUCCESS" in told_by("promtool", "check", "config", PROMETHEUS / "prometheus.yml")


@pytest.mark.parametrize("name", dashboards())
def test_prometheus_understands_every_query_of_a_dashboard(name: str, tmp_path: Path) -> None:
    """promtool parses expressions only inside rules, so each query becomes one."""
    asked = [expression for _, expression in queries(dashboards()[name])]
    rules = [{"record": f"panel:query:{number}", "expr": expression} for number, expression in enumerate(asked)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    assert f"{len(asked)} rules found" in told_by("promtool", "check", "rules", tmp_path / "queries.yml")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that is there: systemd-analyze searches for it."""
    folder = tmp_path / "systemd"
    shutil.copytree(DEPLOY / "systemd", folder)
    for unit in folder.rglob("*.service"):
        text = unit.read_text().replace("/opt/outbox/bin/outbox", "/bin/true")
        unit.write_text(text.replace("/opt/kafka/bin/connect-standalone.sh", "/bin/true"))
    return folder


def test_systemd_accepts_the_units(units: Path) -> None:
    told = told_by("systemd-analyze", "verify", "--man=no", *sorted(units.rglob("*.service")), *units.glob("*.timer"))
    assert told.strip() == ""


@pytest.mark.parametrize("name", [*(unit.name for unit in UNITS), "kafka/outbox-connect.service"])
def test_systemd_finds_little_exposed(units: Path, name: str) -> None:
    told = told_by("systemd-analyze", "security", "--offline=true", "--no-pager", units / name)
    found = re.search(r"Overall exposure level.*: ([\d.]+) ", told)
    assert found
    assert float(found[1]) <= WORST_SCORE
