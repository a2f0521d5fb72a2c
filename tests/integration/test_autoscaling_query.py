"""KEDA's question to PostgreSQL: due rows and no others, answered from the claim's indexes."""

from tests.fixtures.deployment import DEPLOY, read_all_yaml
from tests.fixtures.queue import EventTable

SCALED = DEPLOY / "kubernetes" / "components" / "autoscaling" / "scaledobject.yaml"
QUERY = read_all_yaml(SCALED)[0]["spec"]["triggers"][0]["metadata"]["query"]


def test_it_counts_fresh_rows_and_retries_that_are_due(queue: EventTable) -> None:
    queue.produce_many(7)
    queue.produce("due", next_retry_at="2020-01-01")
    queue.produce("waiting", next_retry_at="2099-01-01")
    queue.produce("broken", status="failed")
    queue.produce("finished", status="done")
    assert queue.value(QUERY) == 8


def test_it_reads_the_claims_indexes(queue: EventTable) -> None:
    queue.produce_many(2_000)
    queue.connection.execute("update search_outbox_events set status = 'done'")
    queue.connection.execute("vacuum analyze search_outbox_events")
    plan = "\n".join(row[0] for row in queue.connection.execute(f"explain {QUERY}".encode()).fetchall())
    assert "Seq Scan" not in plan
