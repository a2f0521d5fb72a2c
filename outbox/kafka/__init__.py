"""Kafka as a source of events, beside `store` and `sink`: the only room that knows it.

Read `events` first: it gives the daemon the records of a consumer group as if they were claimed rows.
"""
