"""The labs that pages tell a reader to run: every line is started as it is written, up to the start of the servers."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from labs.commands import app
from labs.experiment import all_experiments
from tests.fixtures.deployment import RUNBOOKS
from tests.fixtures.pages import blocks_of
from tests.fixtures.processes import ROOT

GUIDE = ROOT / "labs" / "GUIDE.md"
SCRIPT = "scripts/lab"


def by_machine() -> list[str]:
    """The commands of the guide's lines that say "by machine"."""
    said = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if "by machine" in line.lower()]
    return [command for line in said for command in re.findall(r"`([^`]+ run [^`]+)`", line)]


def rehearsals() -> list[str]:
    blocks = [block for page in sorted(RUNBOOKS.glob("*.md")) for block in blocks_of(page) if block.needs == "labs"]
    return [line for block in blocks for line in block.body.splitlines()]


# Needs no broken part: some requests with a wrong token are the case itself.
BY_HAND = {"OutboxConsoleRefusals"}
LINES = sorted({*by_machine(), *rehearsals()})


def test_the_guides_six_and_every_runbook_have_their_lines() -> None:
    assert {f"{SCRIPT} run {one.name}" for one in all_experiments().values() if one.guide} <= set(by_machine())
    assert f"{SCRIPT} run --guide" in by_machine()
    pages = {page.stem: page.read_text(encoding="utf-8") for page in sorted(RUNBOOKS.glob("Outbox*.md"))}
    without = {page for page, text in pages.items() if not re.search(r"^scripts/lab run ", text, re.M)}
    assert without == BY_HAND
    assert all("```sh\n" in pages[page].partition("## Rehearse")[2] for page in BY_HAND)


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_understood_as_it_is_written(line: str) -> None:
    script, *arguments = shlex.split(line)
    assert script == SCRIPT
    ran = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert ran.exit_code == 0, ran.output
    names = [one.name for one in all_experiments().values() if one.guide] if "--guide" in arguments else arguments[1:]
    assert [told.split()[0] for told in ran.output.splitlines()] == names
