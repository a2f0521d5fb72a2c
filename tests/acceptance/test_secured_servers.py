"""Real servers with security on: TLS by a private authority to both, the documented keys, bad keys, rotation."""

import ssl
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from labs.addresses import with_words
from outbox.embedded import EmbeddedPostgres
from outbox.store.schema.migrate import migrate
from tests.fixtures.commands import call
from tests.fixtures.failures import statuses
from tests.fixtures.postgres import fresh_database
from tests.fixtures.processes import RunningProcess, StartProcess, http_get
from tests.fixtures.scripted import answer, scripted
from tests.fixtures.secured import Authority, SecuredElastic, documented, secured_postgres_server
from tests.fixtures.waiting import eventually

NO_LOGIN: Any = None  # the client takes it, and its types do not say so

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
FOR_THE_DAEMON = "`POST /_security/api_key` for `outbox run`"
FOR_PEOPLE = "For people (`outbox verify`"
FOR_AN_ADMINISTRATOR = "For an administrator (`outbox index create`"
# docs/security.md: probes at most five seconds apart. As much again is for a busy machine.
RESUMED_WITHIN = 10.0

Start = Callable[..., RunningProcess]


@pytest.fixture
def target(secured_elastic: SecuredElastic) -> Iterator[str]:
    """An alias with its index, as `outbox index create` makes them."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    admin = secured_elastic.admin
    admin.indices.create(index=f"{name}-v1", aliases={name: {"is_write_index": True}}, settings={"gc_deletes": "1h"})
    yield name
    admin.indices.delete(index=f"{name}-v1", ignore_unavailable=True)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "key"


@pytest.fixture
def start(
    start_daemon: StartProcess, database: str, secured_elastic: SecuredElastic, target: str, key_file: Path
) -> Start:
    """The daemon on the secured server with the key that the file holds now."""

    def run(key: dict[str, Any] | str, **more: str) -> RunningProcess:
        key_file.write_text(key if isinstance(key, str) else key["encoded"])
        return start_daemon(
            ELASTIC_URL=secured_elastic.url,
            ELASTIC_CA_CERTS=str(secured_elastic.ca_certs),
            ELASTIC_INDEX=target,
            ELASTIC_API_KEY_FILE=str(key_file),
            **more,
        )

    return run


def the_documented_key(
    secured: SecuredElastic, target: str, heading: str = FOR_THE_DAEMON, **more: Any
) -> dict[str, Any]:
    asked = documented(PAGE.replace("NAME", target), heading)
    return dict(secured.admin.security.create_api_key(**{**asked, **more}).body)


def an_expired_key(secured: SecuredElastic, target: str) -> dict[str, Any]:
    key = the_documented_key(secured, target, expiration="1s")
    eventually(lambda: not _is_valid(secured, key), what="the key has expired")
    return key


def enqueue(connection: psycopg.Connection[Any], id: str, op: str = "upsert") -> None:
    payload = '{"t": 1}' if op == "upsert" else None
    connection.execute("select outbox_enqueue('article', %s, %s, %s)", [id, op, payload])


def paused(daemon: RunningProcess, cause: str = "es_auth") -> bool:
    return f'outbox_paused{{cause="{cause}",projection="search_index_to_elastic"}} 1.0' in daemon.wait_for_http(
        "/metrics"
    )


def test_the_documented_key_is_enough_for_all_that_the_daemon_does(
    start: Start, connection: psycopg.Connection[Any], secured_elastic: SecuredElastic, target: str
) -> None:
    for id in ("1", "2"):
        enqueue(connection, id)
    daemon = start(the_documented_key(secured_elastic, target))
    daemon.wait_until(lambda: statuses(connection) == {"done": 2}, "both upserts")
    enqueue(connection, "2", "delete")
    daemon.wait_until(lambda: statuses(connection) == {"done": 3}, "the delete")
    assert secured_elastic.admin.exists(index=target, id="article:1")
    assert not secured_elastic.admin.exists(index=target, id="article:2")
    assert daemon.terminate() == 0
    assert not [fact for fact in daemon.facts() if fact["level"] in ("error", "critical")]
    assert not daemon.facts("sink.paused")


FORBIDDEN = [
    ("GET", "/{target}/_doc/article:1", "reads a document"),
    ("GET", "/{target}/_search", "searches"),
    ("PUT", "/{target}-v1/_settings", "changes a setting"),
    ("DELETE", "/{target}-v1", "deletes the index"),
    ("PUT", "/another-{target}", "creates an index"),
    ("GET", "/", "asks for the cluster's name"),
    ("GET", "/_security/user", "reads users"),
]


@pytest.mark.parametrize(("method", "path", "gain"), FORBIDDEN, ids=[row[2] for row in FORBIDDEN])
def test_the_documented_key_is_good_for_nothing_else(
    secured_elastic: SecuredElastic, target: str, method: str, path: str, gain: str
) -> None:
    key = the_documented_key(secured_elastic, target)
    client = secured_elastic.admin.options(basic_auth=NO_LOGIN, api_key=key["encoded"], ignore_status=(403,))
    body = {"index": {"number_of_replicas": 0}} if path.endswith("_settings") else None
    headers = {"accept": "application/json", **({"content-type": "application/json"} if body else {})}
    answer = client.perform_request(method, path.format(target=target), headers=headers, body=body)
    assert answer.meta.status == 403, gain


BAD_KEYS = [
    ("a wrong key", lambda secured, target: "bm90LWE6a2V5LWF0LWFsbA=="),
    ("a key that may only read", lambda secured, target: secured.key(target, ["read", "view_index_metadata"])),
    ("a key for another index", lambda secured, target: secured.key("other", ["index", "delete"])),
    ("an expired key", an_expired_key),
]


@pytest.mark.parametrize("make", [row[1] for row in BAD_KEYS], ids=[row[0] for row in BAD_KEYS])
def test_a_bad_key_pauses_spends_nothing_and_the_right_one_in_the_file_ends_it(
    start: Start,
    connection: psycopg.Connection[Any],
    secured_elastic: SecuredElastic,
    target: str,
    key_file: Path,
    make: Callable[[SecuredElastic, str], Any],
) -> None:
    enqueue(connection, "1")
    daemon = start(make(secured_elastic, target))
    told = daemon.wait_for_fact("sink.paused", reason="es_auth")
    assert told["level"] == "warning"
    daemon.wait_until(lambda: paused(daemon), "the pause in the metrics")
    _, ready = http_get(daemon.metrics_url + "/readyz")
    assert "es_auth" in ready
    # A trial takes the row every few seconds, and gives it back with its attempt.
    state = "select status, attempts from search_outbox_events"
    daemon.wait_until(lambda: connection.execute(state).fetchone() == ("pending", 0), "nothing spent")
    replace(key_file, the_documented_key(secured_elastic, target)["encoded"])
    daemon.wait_for_fact("sink.resumed", within=RESUMED_WITHIN)
    daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "the event")
    assert daemon.terminate() == 0


def replace(file: Path, secret: str) -> None:
    """As a secret manager does it: whole, or not at all."""
    beside = file.with_suffix(".new")
    beside.write_text(secret)
    beside.rename(file)


def test_a_key_is_rotated_without_a_restart_and_without_a_pause(
    start: Start, connection: psycopg.Connection[Any], secured_elastic: SecuredElastic, target: str, key_file: Path
) -> None:
    first, second = (the_documented_key(secured_elastic, target) for _ in range(2))
    daemon = start(first)
    enqueue(connection, "1")
    daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "an event with the first key")
    replace(key_file, second["encoded"])
    secured_elastic.revoke(first)
    eventually(lambda: not _is_valid(secured_elastic, first), what="the first key is good for nothing")
    enqueue(connection, "2")
    daemon.wait_until(lambda: statuses(connection) == {"done": 2}, "an event with the second key")
    assert not daemon.facts("sink.paused")
    assert daemon.terminate() == 0


def test_a_revoked_key_pauses_in_the_middle_of_the_work(
    start: Start, connection: psycopg.Connection[Any], secured_elastic: SecuredElastic, target: str, key_file: Path
) -> None:
    key = the_documented_key(secured_elastic, target)
    daemon = start(key)
    enqueue(connection, "1")
    daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "an event")
    secured_elastic.revoke(key)
    eventually(lambda: not _is_valid(secured_elastic, key), what="the key is gone from every cache")
    enqueue(connection, "2")
    daemon.wait_for_fact("sink.paused", reason="es_auth")
    daemon.wait_until(lambda: statuses(connection) == {"done": 1, "pending": 1}, "the event back in the queue")
    replace(key_file, the_documented_key(secured_elastic, target)["encoded"])
    daemon.wait_until(lambda: statuses(connection) == {"done": 2}, "the event")
    assert daemon.terminate() == 0


def _is_valid(secured: SecuredElastic, key: dict[str, Any]) -> bool:
    client = secured.admin.options(basic_auth=NO_LOGIN, api_key=key["encoded"], ignore_status=(401,))
    return client.security.authenticate().meta.status == 200


def test_an_elasticsearch_of_another_authority_gets_not_a_byte(
    start_daemon: StartProcess,
    connection: psycopg.Connection[Any],
    secured_elastic: SecuredElastic,
    target: str,
    tmp_path: Path,
) -> None:
    stranger = Authority.made(tmp_path / "stranger", "somebody else")
    enqueue(connection, "1")
    daemon = start_daemon(
        ELASTIC_URL=secured_elastic.url, ELASTIC_CA_CERTS=str(stranger.certificate), ELASTIC_INDEX=target
    )
    told = daemon.wait_for_fact("sink.paused", reason="es_config")
    assert "ELASTIC_CA_CERTS" in str(told)
    daemon.wait_until(lambda: unspent(connection), "the event back in the queue")
    assert daemon.terminate() == 0


def unspent(connection: psycopg.Connection[Any]) -> bool:
    found = connection.execute("select status, attempts from search_outbox_events").fetchall()
    return found == [("pending", 0)]


def test_an_elasticsearch_with_a_certificate_for_another_name_is_sent_nothing(
    start_daemon: StartProcess, connection: psycopg.Connection[Any], authority: Authority, key_file: Path
) -> None:
    files = authority.issue("another-elasticsearch", "DNS:elsewhere.example")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.certificate, files.key)
    key_file.write_text("bm90LWE6a2V5LWF0LWFsbA==")
    enqueue(connection, "1")
    with scripted(lambda _: answer(500), tls=tls) as server:
        daemon = start_daemon(
            ELASTIC_URL=server.url,
            ELASTIC_CA_CERTS=str(authority.certificate),
            ELASTIC_INDEX="things",
            ELASTIC_API_KEY_FILE=str(key_file),
        )
        told = daemon.wait_for_fact("sink.paused", reason="es_config")
        assert "ELASTIC_URL" in str(told)
        daemon.wait_until(lambda: unspent(connection), "the event back in the queue")
        assert daemon.terminate() == 0
    assert server.requests == [], "neither the key nor a document was sent"


def test_a_missing_target_with_the_documented_key_pauses_and_no_index_appears(
    start: Start, connection: psycopg.Connection[Any], secured_elastic: SecuredElastic, target: str
) -> None:
    admin = secured_elastic.admin
    admin.indices.delete(index=f"{target}-v1")
    enqueue(connection, "1")
    daemon = start(the_documented_key(secured_elastic, target))
    told = daemon.wait_for_fact("sink.paused", reason="es_auth")
    assert "auto_create" in str(told), "the reason says what the key may not do"
    daemon.wait_until(lambda: unspent(connection), "the event back in the queue")
    assert not admin.indices.exists(index=f"{target}*", allow_no_indices=False)
    admin.indices.create(index=f"{target}-v1", aliases={target: {"is_write_index": True}})
    daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "the event")
    assert admin.exists(index=target, id="article:1")
    assert daemon.terminate() == 0


def by_hand(secured: SecuredElastic, database: str, target: str, key: dict[str, Any]) -> dict[str, str | None]:
    """The environment of a person's command with this key."""
    return {
        "DATABASE_URL": database,
        "ELASTIC_URL": secured.url,
        "ELASTIC_CA_CERTS": str(secured.ca_certs),
        "ELASTIC_INDEX": target,
        "ELASTIC_API_KEY": key["encoded"],
    }


def one_document(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "create view search_documents as select 'article'::text as entity_type, '1'::text as entity_id,"
        " '{\"t\": 1}'::json as document, 1::bigint as version"
    )


def test_the_documented_operator_key_compares_and_writes_nothing(
    database: str, connection: psycopg.Connection[Any], secured_elastic: SecuredElastic, target: str
) -> None:
    key = the_documented_key(secured_elastic, target, FOR_PEOPLE)
    env = by_hand(secured_elastic, database, target, key)
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
    secured_elastic.admin.index(**there, refresh=True)
    fine = call("verify", "--json", env=env)
    assert (fine.code, fine.json["compared"], fine.json["drift"]) == (0, 1, 0), fine
    client = secured_elastic.admin.options(basic_auth=NO_LOGIN, api_key=key["encoded"], ignore_status=(403,))
    assert client.index(**there).meta.status == 403


def test_the_documented_administrator_key_creates_and_rebuilds(
    database: str, connection: psycopg.Connection[Any], secured_elastic: SecuredElastic, target: str
) -> None:
    name = f"{target}-made"
    key = the_documented_key(secured_elastic, name, FOR_AN_ADMINISTRATOR)
    env = by_hand(secured_elastic, database, name, key)
    one_document(connection)
    try:
        made = call("index", "create", env=env)
        assert made.code == 0, made
        rebuilt = call("rebuild", "--yes", env=env)
        assert rebuilt.code == 0, rebuilt
        finished = call("rebuild", "--finish", "--yes", env=env)
        assert finished.code == 0, finished
        assert list(secured_elastic.admin.indices.get_alias(name=name)) == [f"{name}-v2"]
        assert secured_elastic.admin.exists(index=name, id="article:1")
    finally:
        secured_elastic.admin.indices.delete(index=f"{name}-v1,{name}-v2", ignore_unavailable=True)
        secured_elastic.admin.options(ignore_status=404).indices.delete_index_template(name=f"{name}*")


# PostgreSQL


def verified(server: EmbeddedPostgres, authority: Path, host: str = "127.0.0.1", database: str = "postgres") -> str:
    url = server.database_url(database).replace("@127.0.0.1:", f"@{host}:")
    return with_words(url, f"sslmode=verify-full&sslrootcert={quote(str(authority))}")


def test_the_daemon_works_over_verified_tls_to_both_servers(
    start_daemon: StartProcess,
    secured_postgres: EmbeddedPostgres,
    secured_elastic: SecuredElastic,
    authority: Authority,
    target: str,
    key_file: Path,
) -> None:
    key_file.write_text(the_documented_key(secured_elastic, target)["encoded"])
    with fresh_database(secured_postgres.url) as plain:
        name = urlsplit(plain).path.lstrip("/")
        url = verified(secured_postgres, authority.certificate, database=name)
        migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            enqueue(connection, "1")
            daemon = start_daemon(
                DATABASE_URL=url,
                ELASTIC_URL=secured_elastic.url,
                ELASTIC_CA_CERTS=str(secured_elastic.ca_certs),
                ELASTIC_INDEX=target,
                ELASTIC_API_KEY_FILE=str(key_file),
                OUTBOX_LISTEN="true",
            )
            daemon.wait_until(lambda: statuses(connection) == {"done": 1}, "the event")
            encrypted = connection.execute(
                "select bool_and(ssl), count(*) from pg_stat_ssl join pg_stat_activity using (pid)"
                " where application_name like 'outbox%'"
            ).fetchone()
            assert encrypted is not None
            assert encrypted[0] is True
            assert encrypted[1] >= 3
            assert daemon.terminate() == 0


def test_a_postgres_of_another_authority_is_refused_without_its_password_in_sight(
    secured_postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    stranger = Authority.made(tmp_path / "stranger", "somebody else")
    for command in (("status",), ("run", "--no-wait"), ("migrate",)):
        env = {"DATABASE_URL": verified(secured_postgres, stranger.certificate), "OUTBOX_METRICS_PORT": "0"}
        called = call(*command, env=env)
        assert called.code == 75, called
        assert "certificate verify failed" in called.err
        assert secured_postgres._password() not in called.out + called.err


def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    with secured_postgres_server(authority.issue("elsewhere", "DNS:elsewhere.example")) as server:
        env = {"DATABASE_URL": verified(server, authority.certificate)}
        called = call("status", env=env)
    assert called.code == 75
    assert "does not match host name" in called.err


def test_a_postgres_without_tls_is_refused_where_tls_is_asked_for(postgres_url: str, authority: Authority) -> None:
    url = with_words(postgres_url, f"sslmode=verify-full&sslrootcert={quote(str(authority.certificate))}")
    called = call("status", env={"DATABASE_URL": url})
    assert called.code == 75
    assert "server does not support SSL" in called.err
