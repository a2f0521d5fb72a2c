"""The loop publishes facts: its room neither logs nor counts, and knows no driver."""

import ast
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[3] / "outbox" / "daemon"
FORBIDDEN = {"logging", "prometheus_client", "psycopg", "psycopg_pool", "structlog", "warnings"}


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.stem)
def test_a_module_of_the_loop_imports_neither_metrics_nor_logs_nor_a_driver(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert {
        name for name in imported if name.split(".")[0] in FORBIDDEN or name.startswith("outbox.telemetry")
    } == set()
