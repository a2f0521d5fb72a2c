"""The shipped rules: every alert is complete, tested both ways, and uses existing metrics."""

import re
import runpy
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
