"""The logins that docs/security.md asks for, on a secured server of either product: each is enough and good for nothing
else; bad ones pause; a secret is renewed while the daemon runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.fixtures.commands import call
from tests.fixtures.failures import statuses
from tests.fixtures.logins import Login, Logins, Users, create_target, enqueue, made_target, unspent
from tests.fixtures.processes import RunningProcess, StartProcess, http_get

pytestmark = [
    pytest.mark.slow,
    pytest.mark.release("a secured Elasticsearch takes a minute to start; roles of a database are in the quick run"),
]
# docs/security.md: probes at most five seconds apart. As much again is for a busy machine.
RESUMED_WITHIN = 10.0

Start = Callable[[Login], RunningProcess]


@pytest.fixture
def target(logins: Logins) -> Iterator[str]:
    """An alias with its index, as `outbox index create` makes them."""
    with made_target(logins.admin) as name:
        yield name


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    return tmp_path / "secret"


@pytest.fixture
def start(start_daemon: StartProcess, database: str, logins: Logins, target: str, secret_file: Path) -> Start:
    """The daemon on the secured server, with a login whose secret is in the file."""

    def run(login: Login) -> RunningProcess:
        return start_daemon(**logins.in_file(login, secret_file), ELASTIC_INDEX=target)

    return run


def paused(daemon: RunningProcess) -> bool:
    gauge = 'outbox_paused{cause="es_auth",projection="search_index_to_elastic"} 1.0'
    return gauge in daemon.wait_for_http("/metrics")


def replace(file: Path, secret: str) -> None:
    """As a secret manager does it: whole, or not at all."""
    beside = file.with_suffix(".new")
    beside.write_text(secret)
    beside.rename(file)


# The daemon


def test_the_documented_key_is_enough_for_all_that_the_daemon_does(
    start: Start, connection: psycopg.Connection[Any], logins: Logins, target: str
) -> None:
    """Through the alias, so it writes with require_alias."""
    for id in ("1", "2"):
        enqueue(connection, id)
    daemon = start(logins.daemon(target))
    daemon.wait_until(lambda: statuses(connection) == {"done": 2}, "both upserts")
    enqueue(connection, "2", "delete")
    daemon.wait_until(lambda: statuses(connection) == {"done": 3}, "the delete")
    assert logins.admin.exists(index=target, id="article:1")
    assert not logins.admin.exists(index=target, id="article:2")
    assert daemon.terminate() == 0
    assert not [fact for fact in daemon.facts() if fact["level"] in ("error", "critical")]
    assert not daemon.facts("sink.paused")


FORBIDDEN = [
    ("GET", "/{target}/_doc/article:1", "reads a document"),
    ("GET", "/{target}/_search", "searches"),
    ("PUT", "/{target}-v1/_settings", "changes a setting"),
    ("DELETE", "/{target}-v1", "deletes the index"),
    ("PUT", "/another-{target}", "creates an index"),
    ("PUT", "/{target}-v2", "creates an index of its own name"),
    ("GET", "/", "asks for the cluster's name"),
    ("GET", "/{users}", "reads users"),
]


@pytest.mark.parametrize(("method", "path", "gain"), FORBIDDEN, ids=[row[2] for row in FORBIDDEN])
def test_the_documented_key_is_good_for_nothing_else(
    logins: Logins, target: str, method: str, path: str, gain: str
) -> None:
    users = "_plugins/_security/api/internalusers" if isinstance(logins, Users) else "_security/user"
    body = {"index": {"number_of_replicas": 0}} if path.endswith("_settings") else None
    headers = {"accept": "application/json", **({"content-type": "application/json"} if body else {})}
    client = logins.client(logins.daemon(target)).options(ignore_status=(403,))
    answer = client.perform_request(method, path.format(target=target, users=users), headers=headers, body=body)
    assert answer.meta.status == 403, gain


@pytest.mark.parametrize("which", ["wrong", "may only read", "for another index", "over"])
def test_a_bad_key_pauses_spends_nothing_and_the_right_one_in_the_file_ends_it(
    start: Start, connection: psycopg.Connection[Any], logins: Logins, target: str, secret_file: Path, which: str
) -> None:
    enqueue(connection, "1")
    bad = logins.bad(target, which)
    daemon = start(bad)
    told = daemon.wait_for_fact("sink.paused", reason="es_auth")
    assert told["level"] == "warning"
    daemon.wait_until(lambda: paused(daemon), "the pause in the metrics")
    _, ready = http_get(daemon.metrics_url + "/readyz")
    assert "es_auth" in ready
    # A trial takes the row every few seconds, and gives it back with its attempt.
    daemon.wait_until(lambda: unspent(connection), "nothing spent")
    replace(secret_file, logins.renewed(bad, target).secret)
    daemon.wait_for_fact("sink.resumed", within=RESUMED_WITHIN)
    daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "the event")
    assert daemon.terminate() == 0


def test_a_key_is_rotated_without_a_restart_and_without_a_pause(
    start: Start, connection: psycopg.Connection[Any], logins: Logins, target: str, secret_file: Path
) -> None:
    first = logins.daemon(target)
    daemon = start(first)
    enqueue(connection, "1")
    daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "an event with the first secret")
    replace(secret_file, logins.renewed(first, target).secret)
    logins.retire(first)
    enqueue(connection, "2")
    daemon.wait_until(lambda: statuses(connection) == {"done": 2}, "an event with the second secret")
    assert not daemon.facts("sink.paused")
    assert daemon.terminate() == 0


def test_a_missing_target_with_the_documented_key_pauses_and_no_index_appears(
    start: Start, connection: psycopg.Connection[Any], logins: Logins, target: str
) -> None:
    admin = logins.admin
    admin.indices.delete(index=f"{target}-v1")
    enqueue(connection, "1")
    daemon = start(logins.daemon(target))
    told = daemon.wait_for_fact("sink.paused", reason="es_auth")
    action = "indices:admin/create" if isinstance(logins, Users) else "auto_create"
    assert action in str(told), "the reason says what the login may not do"
    daemon.wait_until(lambda: unspent(connection), "the event back in the queue")
    assert not admin.indices.exists(index=f"{target}*", allow_no_indices=False, expand_wildcards="all")
    create_target(logins.admin, target)
    daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "the event")
    assert admin.exists(index=target, id="article:1")
    assert daemon.terminate() == 0


# People and administrators


def by_hand(logins: Logins, login: Login, database: str, target: str) -> dict[str, str | None]:
    """The environment of a person's command with this login."""
    return {**logins.environment(login), "DATABASE_URL": database, "ELASTIC_INDEX": target}


def one_document(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "create view search_documents as select 'article'::text as entity_type, '1'::text as entity_id,"
        " '{\"t\": 1}'::json as document"
    )


def test_the_documented_operator_key_compares_and_writes_nothing(
    database: str, connection: psycopg.Connection[Any], logins: Logins, target: str
) -> None:
    login = logins.people(target)
    env = by_hand(logins, login, database, target)
    one_document(connection)
    missing = call("verify", "--json", env=env)
    assert (missing.code, missing.json["missing"]) == (1, 1), missing
    planned = call("repair", "--dry-run", "--json", env=env)
    assert (planned.code, planned.json["planned"]) == (0, 1), planned
    there: dict[str, Any] = {
        "index": target,
        "id": "article:1",
        "document": {"t": 1},
        "version": 1,
        "version_type": "external_gte",
    }
    logins.admin.index(**there, refresh=True)
    fine = call("verify", "--json", env=env)
    assert (fine.code, fine.json["compared"], fine.json["drift"]) == (0, 1, 0), fine
    checked = {each["name"]: each["verdict"] for each in call("doctor", "--json", env=env).json["findings"]}
    assert checked["elasticsearch"] == "ok"
    assert logins.client(login).options(ignore_status=(403,)).index(**there).meta.status == 403


def test_the_documented_administrator_key_creates_and_rebuilds(
    database: str, connection: psycopg.Connection[Any], logins: Logins, target: str
) -> None:
    name = f"{target}-made"
    env = by_hand(logins, logins.administrator(name), database, name)
    one_document(connection)
    try:
        made = call("index", "create", env=env)
        assert made.code == 0, made
        rebuilt = call("rebuild", "--yes", env=env)
        assert rebuilt.code == 0, rebuilt
        finished = call("rebuild", "--finish", "--yes", env=env)
        assert finished.code == 0, finished
        assert list(logins.admin.indices.get_alias(name=name)) == [f"{name}-v2"]
        assert logins.admin.exists(index=name, id="article:1")
    finally:
        logins.admin.indices.delete(index=f"{name}-v1,{name}-v2", ignore_unavailable=True)
        logins.admin.options(ignore_status=404).indices.delete_index_template(name=f"{name}*")
