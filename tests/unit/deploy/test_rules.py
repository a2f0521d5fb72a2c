"""The shipped rules: every alert is complete, tested both ways, and uses existing metrics."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.deployment import (
    DEPLOY,
    PROMETHEUS,
    RUNBOOKS,
    TABLE_GAUGES,
    alerts,
    groups,
    known_metrics,
    metrics_in,
    read_yaml,
    rules,
)

TWIN = DEPLOY / "kubernetes" / "components" / "monitoring" / "prometheusrule.yaml"
RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def named(rule: Any) -> str:
    return rule.get("record") or f"{rule['alert']} {rule['labels']['severity']}"


def alert_cases() -> list[Any]:
    files = sorted((PROMETHEUS / "tests").glob("*.yml"))
    return [alert for file in files for test in read_yaml(file)["tests"] for alert in test["alert_rule_test"]]


@pytest.mark.parametrize("alert", alerts(), ids=named)
def test_every_alert_has_severity_summary_description_and_a_runbook_page(alert: Any) -> None:
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["description"]
    assert alert["annotations"]["runbook"] == f"docs/runbooks/{alert['alert']}.md"
    assert (RUNBOOKS / f"{alert['alert']}.md").is_file()
    # There is no address for all sites: deploy/runbook_urls.py adds the site's own.
    assert "runbook_url" not in alert["annotations"]


def test_the_sites_address_reaches_every_alert_and_panel_and_can_be_changed(tmp_path: Path) -> None:
    for folder in ("deploy/prometheus", "deploy/kubernetes/components/monitoring", "grafana/dashboards"):
        shutil.copytree(DEPLOY.parent / folder, tmp_path / folder)
    shutil.copy(DEPLOY / "runbook_urls.py", tmp_path / "deploy")
    for base in ("https://old.internal/", "https://wiki.internal/outbox"):
        subprocess.run([sys.executable, tmp_path / "deploy" / "runbook_urls.py", base], check=True)
    pages = [f"https://wiki.internal/outbox/{alert['alert']}.md" for alert in alerts()]
    plain = read_yaml(tmp_path / "deploy" / "prometheus" / "rules" / "alerts.yml")["groups"]
    assert [rule["annotations"]["runbook_url"] for group in plain for rule in group["rules"]] == pages
    twin = (tmp_path / "deploy" / "kubernetes" / "components" / "monitoring" / "prometheusrule.yaml").read_text()
    assert [line.split()[1] for line in twin.splitlines() if "runbook_url" in line] == pages
    boards = [json.loads(path.read_text()) for path in (tmp_path / "grafana" / "dashboards").glob("*.json")]
    named = [panel for board in boards for panel in board["panels"] if "Runbook: " in panel.get("description", "")]
    assert len(named) > 20
    for panel in named:
        page = panel["description"].rpartition("/")[2]
        assert [link["url"] for link in panel["links"]] == [f"https://wiki.internal/outbox/{page}"]


def test_every_runbook_page_belongs_to_an_alert() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("Outbox*.md")}
    assert pages == {alert["alert"] for alert in alerts()}


@pytest.mark.parametrize("rule", rules(), ids=named)
def test_every_rule_asks_for_metrics_that_there_are(rule: Any) -> None:
    recorded = set(re.findall(r"\w+:\w+:\w+", rule["expr"]))
    assert recorded <= RECORDED
    assert metrics_in(rule["expr"]) <= known_metrics()
    assert recorded | metrics_in(rule["expr"])


@pytest.mark.parametrize("gauge", TABLE_GAUGES)
def test_gauges_over_the_table_are_taken_by_their_maximum(gauge: str) -> None:
    for rule in rules():
        for found in re.finditer(rf"(?<![\w:]){gauge}\b(?!:)", rule["expr"]):
            assert re.search(r"max by \(projection[^)]*\) \($", rule["expr"][: found.start()]), rule["expr"]


@pytest.mark.parametrize(
    "severity", [(a["alert"], a["labels"]["severity"], a["labels"].get("window")) for a in alerts()]
)
def test_every_alert_is_shown_firing(severity: tuple[str, str, str | None]) -> None:
    name, wanted, window = severity
    fired = [told["exp_labels"] for test in alert_cases() if test["alertname"] == name for told in test["exp_alerts"]]
    assert any(labels["severity"] == wanted and labels.get("window") == window for labels in fired)


@pytest.mark.parametrize("name", sorted({alert["alert"] for alert in alerts()}))
def test_every_alert_is_shown_silent(name: str) -> None:
    assert any(test["alertname"] == name and not test["exp_alerts"] for test in alert_cases())


def test_the_rule_for_the_operator_is_the_plain_rules_twin() -> None:
    render = runpy.run_path(str(PROMETHEUS / "operator_twin.py"))["render"]
    assert TWIN.read_text() == render(), "run scripts/docs"
    assert yaml.safe_load(TWIN.read_text())["spec"]["groups"] == groups()
