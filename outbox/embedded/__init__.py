"""PostgreSQL, Elasticsearch, OpenSearch, Kafka without Docker, for `outbox up`, tests and labs. Not for production."""

from outbox.embedded.connect import EmbeddedConnect
from outbox.embedded.elasticsearch import EmbeddedElasticsearch
from outbox.embedded.kafka import EmbeddedKafka
from outbox.embedded.opensearch import EmbeddedOpenSearch
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.embedded.search import EmbeddedSearch, TlsFiles
from outbox.embedded.stack import EmbeddedStack, EmbeddedStream

__all__ = [
    "EmbeddedConnect",
    "EmbeddedElasticsearch",
    "EmbeddedKafka",
    "EmbeddedOpenSearch",
    "EmbeddedPostgres",
    "EmbeddedSearch",
    "EmbeddedStack",
    "EmbeddedStream",
    "TlsFiles",
]
