"""Interpretation of pip-audit's reports: a package that could not be checked is never reported as clean."""

import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[3] / "scripts" / "audit_verdict.py"))
CLEAN = {"name": "a", "version": "1", "vulns": []}
VULNERABLE = {"name": "b", "version": "1", "vulns": [{"id": "CVE-1"}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("packages", "code", "word"),
    [
        ([CLEAN], 0, "no known vulnerability"),
        ([CLEAN, VULNERABLE], 1, "b 1: CVE-1"),
        ([CLEAN, SKIPPED], 3, "1 of 2"),
        ([VULNERABLE, SKIPPED], 1, "CVE-1"),
        ([], 3, "0 of 0"),
    ],
)
def test_a_report_is_judged(packages: list[dict[str, Any]], code: int, word: str) -> None:
    found, told = SCRIPT["verdict"](packages)
    assert found == code
    assert word in told
