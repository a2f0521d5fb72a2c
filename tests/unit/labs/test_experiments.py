"""Every experiment is complete: its texts, alerts and runbook; and the product does not import labs."""

import re
from pathlib import Path

import pytest
import yaml

from labs.experiment import Experiment, all_experiments
from outbox.config.settings import VARIABLES

ROOT = Path(__file__).parents[3]
ALL = all_experiments()
GUIDE = ["stuck_reclaim", "es_down_connect", "bad_op", "max_attempts", "replay_audit", "daemon_runtime"]


@pytest.mark.parametrize("one", ALL.values(), ids=list(ALL))
def test_an_experiment_says_everything_a_reader_needs(one: Experiment) -> None:
    assert len(one.story) > 40
    assert one.finding is not None, "a number of its own"
    assert len(one.hypothesis) > 60
    assert one.title[0].isupper()
    assert not one.title.endswith(".")
    assert len(one.invariants) >= 11
    assert (ROOT / one.runbook).exists(), one.runbook
    assert one.settings.keys() <= VARIABLES.keys()


ON_RECORD = re.compile(
    r"^\| \[`(\w+)`\]\(reports/([\w-]+\.md)\) \| (\w+) \| .* \| (Elasticsearch|OpenSearch) [\d.]+ \| \d+ \| \w+ \| 20",
    re.MULTILINE,
)


def test_the_record_has_a_pass_of_every_experiment_with_its_finding_server_and_commit() -> None:
    text = (ROOT / "labs" / "RECORD.md").read_text()
    rows = ON_RECORD.findall(text)
    assert [name for name, _, _, product in rows if product == "Elasticsearch"] == list(ALL)
    assert {verdict for _, _, verdict, _ in rows} == {"PASS"}
    assert {path.name for path in (ROOT / "labs" / "reports").glob("*.md")} == {report for _, report, _, _ in rows}
    assert "dirty" not in text


def test_every_experiment_is_on_record_on_opensearch_too_or_says_why_it_cannot() -> None:
    """First of all the guide's six."""
    rows = ON_RECORD.findall((ROOT / "labs" / "RECORD.md").read_text())
    there = [name for name, _, _, product in rows if product == "OpenSearch"]
    assert there[: len(GUIDE)] == GUIDE
    assert there == [name for name, one in ALL.items() if not one.only_elasticsearch]


def test_expected_alerts_are_alerts_that_are_shipped() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text())
    known = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert {name for one in ALL.values() for name in one.expected_alerts} <= known


def test_nothing_in_the_product_knows_that_labs_exist() -> None:
    knows = [path for path in (ROOT / "outbox").rglob("*.py") if re.search(r"\b(import|from) labs\b", path.read_text())]
    assert knows == []
