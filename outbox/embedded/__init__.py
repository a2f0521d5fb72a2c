"""PostgreSQL and Elasticsearch or OpenSearch without Docker, for `outbox up`, tests and labs. Not for production."""

from outbox.embedded.elasticsearch import EmbeddedElasticsearch
from outbox.embedded.opensearch import EmbeddedOpenSearch
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.embedded.search import EmbeddedSearch, TlsFiles
from outbox.embedded.stack import EmbeddedStack

__all__ = [
    "EmbeddedElasticsearch",
    "EmbeddedOpenSearch",
    "EmbeddedPostgres",
    "EmbeddedSearch",
    "EmbeddedStack",
    "TlsFiles",
]
