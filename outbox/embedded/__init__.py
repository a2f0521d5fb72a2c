"""PostgreSQL and Elasticsearch without Docker, for `outbox up`, tests and labs. Not for production."""

from outbox.embedded.elasticsearch import EmbeddedElasticsearch, TlsFiles
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.embedded.stack import EmbeddedStack

__all__ = ["EmbeddedElasticsearch", "EmbeddedPostgres", "EmbeddedStack", "TlsFiles"]
