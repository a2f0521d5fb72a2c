"""Every experiment is complete: its texts, alerts and runbook; and the product does not import labs."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from labs.__main__ import main as start
from labs.commands import app
from labs.errors import UnknownLab
from labs.experiment import Experiment, all_experiments
from outbox.config.settings import VARIABLES

ROOT = Path(__file__).parents[3]
ALL = all_experiments()
GUIDE = ["stuck_reclaim", "es_down_connect", "bad_op", "max_attempts", "replay_audit", "daemon_runtime"]
OTHERS = [
    "es_429_storm", "es_slow", "es_write_block", "es_bulk_partial", "es_reply_lost", "es_wrong_key", "index_missing",
    "node_restarts", "mapping_conflict_brake", "poison_document", "delete_then_late_upsert", "out_of_order_versions",
    "db_restart", "db_connections_cut", "db_claim_contention", "two_workers_one_paused", "clock_skew",
    "replay_during_outage", "webhook_receiver_down", "long_snapshot_held", "joined_documents", "database_restored",
    "kafka_connector_stopped", "kafka_worker_killed",
]  # fmt: skip


def test_all_are_there_the_guides_six_first_and_in_its_order() -> None:
    assert list(ALL)[:6] == GUIDE
    assert sorted(ALL) == sorted(GUIDE + OTHERS)


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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bad_op", "--product", "opensearch", "--elastic-url", "http://127.0.0.1:1"], "use one of them"),
        (["bad_op", "--product", "solr"], "available are elasticsearch-8"),
    ],
    ids=str,
)
def test_a_product_that_cannot_be_is_refused_before_a_server_starts(arguments: list[str], told: str) -> None:
    refused = CliRunner().invoke(app, ["run", *arguments])
    assert isinstance(refused.exception, UnknownLab)
    assert told in str(refused.exception)


def test_expected_alerts_are_alerts_that_are_shipped() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text())
    known = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    assert {name for one in ALL.values() for name in one.expected_alerts} <= known


def test_nothing_in_the_product_knows_that_labs_exist() -> None:
    knows = [path for path in (ROOT / "outbox").rglob("*.py") if re.search(r"\b(import|from) labs\b", path.read_text())]
    assert knows == []


def test_ctrl_c_before_anything_runs_is_said_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("labs.commands.main", interrupted)
    with pytest.raises(SystemExit) as left:
        start()
    assert (left.value.code, "nothing is running" in capsys.readouterr().err) == (130, True)
