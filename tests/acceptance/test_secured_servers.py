"""Real servers with security on: TLS by a private authority to both. Their logins are in test_search_logins.py."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from labs.addresses import with_words
from outbox.embedded import EmbeddedPostgres
from outbox.store.schema.migrate import migrate
from tests.fixtures.commands import call
from tests.fixtures.failures import statuses
from tests.fixtures.logins import Keys, enqueue, made_target
from tests.fixtures.postgres import fresh_database
from tests.fixtures.processes import StartProcess
from tests.fixtures.secured import Authority, SecuredElastic, secured_postgres_server

pytestmark = pytest.mark.slow


@pytest.fixture
def target(secured_elastic: SecuredElastic) -> Iterator[str]:
    """An alias with its index, as `outbox index create` makes them."""
    with made_target(secured_elastic.admin) as name:
        yield name


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return tmp_path / "key"


# PostgreSQL


def verified(server: EmbeddedPostgres, authority: Path, host: str = "127.0.0.1", database: str = "postgres") -> str:
    url = server.database_url(database).replace("@127.0.0.1:", f"@{host}:")
    return with_words(url, f"sslmode=verify-full&sslrootcert={quote(str(authority))}")


@pytest.mark.release("a secured Elasticsearch takes a minute to start; test_bulk_tls.py has TLS without one")
def test_the_daemon_works_over_verified_tls_to_both_servers(
    start_daemon: StartProcess,
    secured_postgres: EmbeddedPostgres,
    secured_elastic: SecuredElastic,
    authority: Authority,
    target: str,
    key_file: Path,
) -> None:
    key_file.write_text(Keys(secured_elastic).daemon(target).secret)
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
    for command in (("status",), ("run", "--no-wait"), ("migrate", "--no-wait")):
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
