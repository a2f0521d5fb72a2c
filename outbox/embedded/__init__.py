"""PostgreSQL, Elasticsearch, OpenSearch, Kafka without Docker, for `outbox up`, tests and labs. Not for production."""

from outbox.embedded.connect import EmbeddedConnect as EmbeddedConnect
from outbox.embedded.elasticsearch import EmbeddedElasticsearch as EmbeddedElasticsearch
from outbox.embedded.kafka import EmbeddedKafka as EmbeddedKafka
from outbox.embedded.opensearch import EmbeddedOpenSearch as EmbeddedOpenSearch
from outbox.embedded.postgres import EmbeddedPostgres as EmbeddedPostgres
from outbox.embedded.search import EmbeddedSearch as EmbeddedSearch
from outbox.embedded.search import TlsFiles as TlsFiles
from outbox.embedded.stack import EmbeddedStack as EmbeddedStack
from outbox.embedded.stack import EmbeddedStream as EmbeddedStream
