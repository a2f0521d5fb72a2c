"""Schemathesis over the OpenAPI document and a real console: no 5xx, no answer that is not documented."""

import subprocess
import sys
from pathlib import Path

import psycopg

from outbox.web.auth import Allowance, RateLimits
from tests.fixtures.console import TOKENS, Served
from tests.fixtures.depth import depth
from tests.fixtures.failures import events

EXAMPLES = depth("1", "10", "50")
PHASES = depth("examples,fuzzing", "examples,coverage,fuzzing")
ROOT = Path(__file__).parents[2]
# The security scheme is optional in the document: on loopback nobody needs a token.
LEFT_OUT = "ignored_auth,positive_data_acceptance,ensure_resource_availability,use_after_free"


class NoPace(RateLimits):
    """Thousands of requests per minute are what this test is."""

    def take(self, allowance: Allowance, key: str) -> float:
        return 0.0


def test_no_request_meets_a_server_error_or_an_undocumented_answer(
    guarded: Served, connection: psycopg.Connection, tmp_path: Path
) -> None:
    events(connection, 30)
    events(connection, 5, status="done", prefix="d")
    guarded.app.state.gate.pace = NoPace()
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", str(ROOT / "docs" / "openapi.json"), "--url", guarded.url,
        "--checks", "all", "--exclude-checks", LEFT_OUT, "--phases", PHASES,
        "--max-examples", EXAMPLES, "--seed", "7", "--no-color", "--continue-on-failure", "--request-timeout", "20",
        "-H", f"Authorization: Bearer {TOKENS['admin']}",
    ]  # fmt: skip
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False)
    assert "nresolvable" not in run.stdout
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
