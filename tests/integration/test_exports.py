"""No transaction is open while a client reads an export: whoever reads slowly or not at all holds back no vacuum."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest

from tests.fixtures.console import Served
from tests.fixtures.processes import ROOT, clean_environment
from tests.fixtures.starting import COLD

Read = Callable[[int], bytes]
Export = Callable[[], AbstractContextManager[Read]]
ROWS = 200
PIECE = 1_000_000


@pytest.fixture
def long_audit(connection: psycopg.Connection) -> None:
    """32 MB: more than all buffers between the two ends, so that whoever does not read holds up who writes."""
    connection.execute(
        "insert into search_outbox_audit (action, actor, source, detail)"
        " select 'PAUSED', 'alice', 'cli', to_json(repeat('x', 160000)) from generate_series(1, %s)",
        [ROWS],
    )


def transactions(connection: psycopg.Connection) -> set[tuple[object, ...]]:
    """Those of other sessions, each with its beginning."""
    rows = connection.execute(
        "select application_name, pid, xact_start from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and backend_type = 'client backend' and xact_start is not null"
    )
    return set(rows.fetchall())


@contextmanager
def from_the_console(console: Served, method: str, path: str) -> Iterator[Read]:
    with console.client.stream(method, path, headers={"origin": console.url}) as response:
        assert response.status_code == 200
        pieces = response.iter_bytes(PIECE)
        yield lambda most: next(pieces) if most > 0 else b"".join(pieces)


@contextmanager
def from_the_command(servers: dict[str, str | None], form: str) -> Iterator[Read]:
    argv = [*COLD, "audit", "export", "--by", "alice", "--format", form]
    environment = clean_environment(servers)
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        yield child.stdout.read
        assert child.wait() == 0


@pytest.mark.usefixtures("long_audit")
@pytest.mark.parametrize(("way", "form"), [("API", "ndjson"), ("console", "csv"), ("command", "json")])
def test_no_transaction_is_open_while_a_client_reads_an_export(
    connection: psycopg.Connection, console: Served, servers: dict[str, str | None], way: str, form: str
) -> None:
    """A transaction that holds from one piece to the next is seen twice, with the same beginning."""
    ways: dict[str, Export] = {
        "API": lambda: from_the_console(console, "GET", f"/api/v1/audit/export?format={form}"),
        "console": lambda: from_the_console(console, "POST", f"/ops/queue/audit/export?format={form}"),
        "command": lambda: from_the_command(servers, form),
    }
    with ways[way]() as read:
        first = read(PIECE)
        early = transactions(connection)
        second = read(PIECE)
        assert early & transactions(connection) == set()
        rest = read(-1)
    assert len(first) == len(second) == PIECE
    assert (first + second + rest).count(b"x" * 160_000) == ROWS
