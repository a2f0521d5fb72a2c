"""Prints the plain rules as one PrometheusRule for the Prometheus Operator. It does not change them."""

import sys
from pathlib import Path

HEAD = """\
# Made by scripts/docs from deploy/prometheus/rules: change the rules there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: outbox
  labels: {app.kubernetes.io/name: outbox}
spec:
  groups:
"""
RULES = Path(__file__).parent / "rules"


def groups_of(rules: str) -> str:
    """The text under `groups:`, indented by two, with its comments."""
    _, _, groups = rules.partition("\ngroups:\n")
    return "".join(f"  {line}" if line.strip() else line for line in groups.splitlines(keepends=True))


def render() -> str:
    return HEAD + "\n".join(groups_of((RULES / name).read_text()) for name in ("recording.yml", "alerts.yml"))


if __name__ == "__main__":
    sys.stdout.write(render())
