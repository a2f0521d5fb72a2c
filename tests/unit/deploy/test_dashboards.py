"""The dashboards: they can be imported anywhere, use existing metrics, and the README lists every panel."""

import re

import pytest

from tests.fixtures.deployment import (
    ROOT,
    RUNBOOKS,
    TABLE_GAUGES,
    dashboards,
    known_metrics,
    metrics_in,
    panels,
    queries,
)

README = (ROOT / "grafana" / "README.md").read_text()
BOARDS = dashboards()
QUERIES = [(name, where, expression) for name, board in BOARDS.items() for where, expression in queries(board)]


@pytest.mark.parametrize(("board", "where", "expression"), QUERIES)
def test_every_query_asks_for_metrics_that_there_are(board: str, where: str, expression: str) -> None:
    assert metrics_in(expression)
    assert metrics_in(expression) <= known_metrics()


@pytest.mark.parametrize(("board", "where", "expression"), QUERIES)
def test_gauges_over_the_table_are_never_summed_over_daemons(board: str, where: str, expression: str) -> None:
    for gauge in TABLE_GAUGES:
        for found in re.finditer(rf"(?<!\w){gauge}\b", expression):
            assert re.search(r"max by \(projection[^)]*\) \($", expression[: found.start()])


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_imports_into_any_grafana(name: str) -> None:
    board = BOARDS[name]
    assert board["uid"] == f"outbox-{name}"
    assert "id" not in board
    assert board["schemaVersion"] >= 39
    assert {v["name"] for v in board["templating"]["list"]} >= {"datasource", "projection"}
    assert {str(panel["datasource"]["uid"]) for panel in panels(board)} == {"${datasource}"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", BOARDS)
def test_every_panel_has_a_unit_and_is_in_the_readme_with_its_metrics(name: str) -> None:
    for panel in panels(BOARDS[name]):
        row = next(line for line in README.splitlines() if line.startswith(f"| {panel['title']} |"))
        if panel["type"] != "alertlist":
            assert panel["fieldConfig"]["defaults"]["unit"]
        told = "".join(line for line in README.splitlines() if line.startswith(f"| {panel['title']} |"))
        for target in panel["targets"]:
            for metric in metrics_in(target["expr"]):
                assert f"`{metric}`" in told
        assert not panel.get("links"), "deploy/runbook_urls.py adds the site's"
        page = re.search(r"Runbook: docs/runbooks/(\S+)$", panel.get("description", ""))
        assert (page[1] if page else "| - |") in row
        assert page is None or (RUNBOOKS / page[1]).is_file()


def test_every_metric_of_ours_is_on_a_dashboard() -> None:
    """Every metric is on a panel, else it should be removed."""
    shown = {metric for _, _, expression in QUERIES for metric in metrics_in(expression)}
    families = {re.sub(r"_(bucket|count|sum)$", "", metric) for metric in shown}
    ours = {re.sub(r"_(bucket|count|sum)$", "", metric) for metric in known_metrics() if metric.startswith("outbox_")}
    # Shown by its parts: retried and failed.
    assert ours - families == {"outbox_failed_total"}
