"""Owns one compatibility run: pytest on a combination, its log and its figures; it chooses no tests."""

import os
import subprocess
import sys
from pathlib import Path

from tests.compat.combination import RESULTS, ROOT, Combination
from tests.compat.ground import Ground, MissingSoftware, standing_on
from tests.compat.outcome import Outcome, commit, now, read_junit


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(combination: Combination) -> Outcome:
    say(f"== {combination.name}: {combination.what}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    began, at = commit(), now()
    try:
        with standing_on(combination) as ground:
            say(f"   {', '.join(f'{name} {version}' for name, version in ground.versions.items())}")
            outcome = _tested(combination, ground, began, at)
    except MissingSoftware as missing:
        outcome = Outcome(combination.name, "MISSING", detail=str(missing), commit=began, at=at)
    say(f"   {outcome.word}: {outcome.figures} {outcome.detail}")
    outcome.save()
    return outcome


def _tested(combination: Combination, ground: Ground, began: str, at: str) -> Outcome:
    code, junit = _pytest(combination.name, ground, ["-n", "2", *combination.tests])
    if not junit.exists():
        told = f"pytest left with {code}; see {_log(combination.name)}"
        return Outcome(combination.name, "FAILED", detail=told, versions=ground.versions, commit=began, at=at)
    passed, failed, skipped, seconds = read_junit(junit)
    word = "passed" if code == 0 and passed else "FAILED"
    detail = "" if word == "passed" else f"see {_log(combination.name)}"
    return Outcome(
        combination.name, word, passed, failed, skipped, seconds, detail, ground.versions, commit=began, at=at
    )


def _pytest(name: str, ground: Ground, arguments: list[str]) -> tuple[int, Path]:
    junit = RESULTS / f"{name}.xml"
    junit.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={junit}"]
    # OUTBOX_* of the caller would reach the tests; only what this run decides does.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OUTBOX_", "ELASTIC_"))}
    with (RESULTS / f"{name}.log").open("w") as output:
        done = subprocess.run(
            [str(ground.python), "-m", "pytest", *options, *arguments],
            cwd=ROOT,
            env={**env, "OUTBOX_TEST_ALL": "1", **ground.env},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.returncode, junit


def _log(name: str) -> Path:
    return (RESULTS / f"{name}.log").relative_to(ROOT)
