"""Kafka as a source of events: an annex, which only `app` and `cli` join to the house.

Read `events` first: it gives the daemon the records of a consumer group as if they were claimed rows.
"""
