"""What the deployment files run in PostgreSQL: the logins, the sample rows and KEDA's query, each as its role."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.fixtures.deployment import DEPLOY, read_all_yaml
from tests.fixtures.roles import ROLES, Roles

COMPOSE = DEPLOY / "compose"
SCALED = read_all_yaml(DEPLOY / "kubernetes" / "components" / "autoscaling" / "scaledobject.yaml")[0]


@pytest.fixture
def producer(roles: Roles) -> Iterator[psycopg.Connection[Any]]:
    with roles.connect("producer") as connection:
        yield connection


def test_the_logins_of_compose_let_every_role_in(roles: Roles, connection: psycopg.Connection[Any]) -> None:
    for role in ROLES:
        connection.execute(sql.SQL("alter role {} nologin").format(sql.Identifier(roles.name(role))))
    logins = (COMPOSE / "logins.sql").read_text()
    # Roles belong to the whole server: this test's have a prefix of their own.
    connection.execute(logins.replace("search_outbox_", f"{roles.prefix}_").encode())
    known = Roles(roles.database, roles.prefix, "wordloom")
    for role in ROLES:
        known.connect(role).close()


def test_the_sample_is_written_once_and_by_a_producer(
    producer: psycopg.Connection[Any], connection: psycopg.Connection[Any]
) -> None:
    for _ in range(2):
        producer.execute((COMPOSE / "sample.sql").read_bytes())
        seen = connection.execute("select op, count(*) from search_outbox_events group by op order by op").fetchall()
        assert seen == [("upsert", 301)]


def test_keda_counts_what_is_due_as_reader(roles: Roles, producer: psycopg.Connection[Any]) -> None:
    producer.execute((COMPOSE / "sample.sql").read_bytes())
    query = SCALED["spec"]["triggers"][0]["metadata"]["query"]
    with roles.connect("reader") as reader:
        assert reader.execute(query.encode()).fetchone() == (301,)
