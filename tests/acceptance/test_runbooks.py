"""Every command of the runbooks, run as written against real servers, a real projector and a real console."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from elasticsearch import Elasticsearch

from outbox.store.schema.migrate import migrate, turn_log_off
from tests.fixtures.deployment import RUNBOOKS
from tests.fixtures.pages import blocks_of, run_shell
from tests.fixtures.postgres import fresh_database
from tests.fixtures.processes import RunningProcess, clean_environment, find_free_port
from tests.fixtures.receivers import receiver
from tests.fixtures.waiting import eventually
from tests.fixtures.warm import warm_programs

PAGES = sorted(RUNBOOKS.glob("*.md"))
# What these say with their exit code is part of the answer: a finding, a drift, not yet caught up, nothing to replay.
ANSWERS = re.compile(r"^outbox (doctor|verify|wait|replay)\b|^outbox-replay\b|^grep\b")
USAGE, CONFIGURATION, NOT_FOUND = 2, 78, 127
# Queries that many pages have; once they have worked, once is enough. Not `wait`: what follows needs what it waits for.
QUERIES = re.compile(
    r"outbox (status|doctor|stats|config|replays list|audit list|migrate status|index check)\b|curl -s .local"
)
BAD_EVENT = """insert into search_outbox_events (entity_type, entity_id, op)
values ('block', gen_random_uuid()::text, 'not-a-real-op')"""
GIVEN_UP_EVENT = """insert into search_outbox_events
(entity_type, entity_id, op, payload, status, attempts, error_reason, error_code, dead_reason, error, error_fingerprint)
values ('block', gen_random_uuid()::text, 'upsert', '{"title": "after an outage"}', 'failed', 10,
        'connect', 'OUTBOX_EXECUTION_FAILED', 'max_attempts_exceeded', 'connection refused', '0123456789abcdef')"""


@dataclass
class Site:
    """A small installation: database, index, projector, console, receiver of webhooks."""

    env: dict[str, str]
    database: str
    seen: set[str] = field(default_factory=set)

    def new(self, script: str) -> str:
        """The script without queries that worked before."""
        lines = [line for line in script.splitlines() if not (QUERIES.match(line) and line in self.seen)]
        self.seen |= set(lines)
        return "\n".join(lines)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@pytest.fixture(scope="module")
def site(
    postgres_url: str, elastic_url: str, es: Elasticsearch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("runbooks")
    with ExitStack() as stack:
        database = stack.enter_context(fresh_database(postgres_url))
        migrate(database, by_type=True, by_entity=True, log=True)
        turn_log_off(database)  # the log is there to be asked, producers write to the table
        index = f"test-{uuid4().hex[:12]}"
        stack.callback(lambda: es.indices.delete(index=index, ignore_unavailable=True))
        es.indices.create(index=index)
        hooks = stack.enter_context(receiver(204))
        metrics, console = find_free_port(), find_free_port()
        settings = {
            "DATABASE_URL": database,
            "ELASTIC_URL": elastic_url,
            "ELASTIC_INDEX": index,
            "OUTBOX_METRICS_PORT": str(metrics),
            "OUTBOX_CONSOLE_PORT": str(console),
            "OUTBOX_WEBHOOK_URL": hooks.url,
            "OUTBOX_WEBHOOK_ALLOWED_HOSTS": "127.0.0.1",
            "OUTBOX_LOG_FORMAT": "json",
        }
        for command in ("run", "console"):
            process = RunningProcess([sys.executable, "-m", "outbox", command], clean_environment(settings))
            stack.callback(process.kill)
            process.wait_for_line("worker.started" if command == "run" else "/ops/queue")
        programs = stack.enter_context(warm_programs(folder / "bin"))
        path = f"{programs}:{os.environ['PATH']}"
        # Not a setting: a place that the pages name.
        env = {**clean_environment(settings), "PATH": path, "CONSOLE_URL": f"http://127.0.0.1:{console}"}
        yield Site(env, database)


@pytest.fixture
def failures_to_look_at(site: Site) -> None:
    """Each page finds some failed events of two kinds, whatever the page before did with its own."""
    for _ in range(3):
        site.sql(GIVEN_UP_EVENT)
    bad = [site.sql(f"{BAD_EVENT} returning id")[0][0] for _ in range(3)]
    ids = ", ".join(f"'{id}'" for id in bad)
    failed = f"select id from search_outbox_events where id in ({ids}) and status = 'failed'"
    eventually(lambda: len(site.sql(failed)) == 3)


@pytest.mark.release("the pages name the same dozen commands, whose flags other tests hold", keep=10)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.usefixtures("failures_to_look_at")
def test_every_command_of_a_page_works(site: Site, page: Path, tmp_path: Path) -> None:
    for block in blocks_of(page):
        if block.kind == "sql":
            site.sql(block.body)
        elif not block.needs:
            ran = run_shell(site.new(block.body), site.env, tmp_path)
            bad = [(code, command) for code, command in ran.failures if not is_an_answer(code, command)]
            assert not bad, f"{page.name}:\n{block.body}\n{ran.output}"


def is_an_answer(code: int, command: str) -> bool:
    return code not in (USAGE, CONFIGURATION, NOT_FOUND) and ANSWERS.match(command) is not None
