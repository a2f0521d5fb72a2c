"""scripts/deployed: what it keeps of a run, its images, and what it puts between real programs: names, quicker rules,
an altered page."""

import json
import re
from pathlib import Path

from tests.deployed.alerting import quick
from tests.deployed.record import Outcome, record, save
from tests.fixtures.deployment import RULES, read_yaml


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
