"""Points alerts and dashboards at your copy of docs/runbooks: `python3 deploy/runbook_urls.py https://wiki.internal/outbox`.

As shipped they name the page by its path in this repository, which is not a link. This adds `runbook_url` to every
alert, and a link to every panel that has a page. A second run replaces the address of the first.
"""

import json
import re
import runpy
import sys
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
PAGES = "docs/runbooks"
ALERT = re.compile(rf"^( +)runbook: {PAGES}/(\w+\.md)\n(?: +runbook_url: .*\n)?", re.MULTILINE)
PANEL = re.compile(rf"Runbook: {PAGES}/(\w+\.md)$")


def alerts(text: str, base: str) -> str:
    return ALERT.sub(rf"\1runbook: {PAGES}/\2\n\1runbook_url: {base}/\2\n", text)


def dashboard(text: str, base: str) -> str:
    board = json.loads(text)
    for panel in board["panels"]:
        if found := PANEL.search(panel.get("description", "")):
            panel["links"] = [{"title": "Runbook", "url": f"{base}/{found[1]}", "targetBlank": True}]
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


def main(base: str) -> None:
    # The rules' own tests expect the annotations that the rules have.
    for rules in (DEPLOY / "prometheus" / "rules" / "alerts.yml", *(DEPLOY / "prometheus" / "tests").glob("*.yml")):
        rules.write_text(alerts(rules.read_text(encoding="utf-8"), base), encoding="utf-8")
    twin = DEPLOY / "kubernetes" / "components" / "monitoring" / "prometheusrule.yaml"
    twin.write_text(runpy.run_path(str(DEPLOY / "prometheus" / "operator_twin.py"))["render"](), encoding="utf-8")
    for board in (DEPLOY.parent / "grafana" / "dashboards").glob("*.json"):
        board.write_text(dashboard(board.read_text(encoding="utf-8"), base), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].startswith(("https://", "http://")):
        sys.exit(__doc__)
    main(sys.argv[1].rstrip("/"))
