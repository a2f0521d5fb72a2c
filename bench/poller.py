"""The usual self-written solution: a loop that polls a table and passes rows to `helpers.bulk`. Not a product.

`python -m bench.poller DSN ELASTIC_URL INDEX`, until it is stopped.
"""

import sys
import time

import psycopg
from elasticsearch import Elasticsearch, helpers

BATCH, REST_SECONDS = 500, 0.1
TABLE = """
create table poller_rows (id bigserial primary key, entity_id text not null, payload jsonb not null,
                          done boolean not null default false);
create index poller_rows_open on poller_rows (id) where not done
"""
TAKE = "select id, entity_id, payload from poller_rows where not done order by id limit %s for update skip locked"


def step(connection: psycopg.Connection, client: Elasticsearch, index: str) -> int:
    """One transaction around the request: the row lock is its lease."""
    with connection.transaction():
        rows = connection.execute(TAKE, [BATCH]).fetchall()
        helpers.bulk(client, ({"_index": index, "_id": row[1], "_source": row[2]} for row in rows))
        connection.execute("update poller_rows set done = true where id = any(%s)", [[row[0] for row in rows]])
    return len(rows)


def main(dsn: str, elastic_url: str, index: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection, Elasticsearch(elastic_url) as client:
        while True:
            if not step(connection, client, index):
                time.sleep(REST_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
