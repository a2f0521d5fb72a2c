"""Chaos experiments with a real PostgreSQL, a real Elasticsearch and real daemons. Nothing in outbox/ imports them."""
