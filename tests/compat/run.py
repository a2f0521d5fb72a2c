"""Owns one compatibility run: pytest on a combination, its log and its figures; it chooses no tests."""

import os
import subprocess
import sys

from tests.compat.combination import RESULTS, ROOT, Combination
from tests.compat.ground import Ground, Missing, standing_on
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
    except Missing as missing:
        outcome = Outcome(combination.name, "MISSING", detail=str(missing), commit=began, at=at)
    say(f"   {outcome.word}: {outcome.figures} {outcome.detail}")
    outcome.save()
    return outcome


def _tested(combination: Combination, ground: Ground, began: str, at: str) -> Outcome:
    junit, log = (RESULTS / f"{combination.name}.{kind}" for kind in ("xml", "log"))
    junit.unlink(missing_ok=True)
    options = ["-q", "-n", "2", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={junit}"]
    # OUTBOX_* of the caller would reach the tests; only what this run decides does.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OUTBOX_", "ELASTIC_"))}
    with log.open("w") as output:
        done = subprocess.run(
            [str(ground.python), "-m", "pytest", *options, *combination.tests],
            cwd=ROOT,
            env={**env, **ground.env},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not junit.exists():
        told = f"pytest left with {done.returncode}; see {log.relative_to(ROOT)}"
        return Outcome(combination.name, "FAILED", detail=told, versions=ground.versions, commit=began, at=at)
    passed, failed, skipped, seconds = read_junit(junit)
    word = "passed" if done.returncode == 0 and passed else "FAILED"
    detail = "" if word == "passed" else f"see {log.relative_to(ROOT)}"
    return Outcome(
        combination.name, word, passed, failed, skipped, seconds, detail, ground.versions, commit=began, at=at
    )
