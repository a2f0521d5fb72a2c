"""CONTRIBUTING.md prints the steps of scripts/test as they are, and names files that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
STEP = re.compile(r'^.*\bstep "([^"]+)"', re.MULTILINE)


def test_the_printed_end_of_a_run_has_every_step_in_its_order() -> None:
    quick = (ROOT / "scripts/steps.sh").read_text().split("check_quickly() {")[1].split("\n}")[0]
    script = (ROOT / "scripts/test").read_text().split("\ncheck_quickly\n")[1]
    run = "\n".join(line for line in script.splitlines() if not line.startswith("is_whole"))
    printed = re.findall(r"^(?:passed|UNKNOWN) +(.+) \(\d+ s\)$", PAGE, re.MULTILINE)
    assert printed == [*STEP.findall(quick), *STEP.findall(run)]
