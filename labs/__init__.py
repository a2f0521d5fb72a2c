"""Chaos experiments over a real PostgreSQL, a real Elasticsearch and real daemons. Nothing in outbox/ knows of them."""
