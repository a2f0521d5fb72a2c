"""Transactional-outbox projector: PostgreSQL rows become Elasticsearch documents."""

__version__ = "0.1.0"
