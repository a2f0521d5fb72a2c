"""Checks Elasticsearch for `outbox doctor`: its version, the versions of documents. Writes nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from outbox.errors import ElasticsearchDown, WrongProduct
from outbox.ports import Finding, Level
from outbox.sink.client import Elastic, NoReply, Reply
from outbox.sink.index import ElasticIndices
from outbox.sink.target_check import WRONG_PRODUCT

MAJORS: Final = ("8", "9")


class ElasticServerCheck:
    def __init__(self, elastic: Elastic, document_id: Callable[[str, str], str]) -> None:
        self._elastic = elastic
        self._indices = ElasticIndices(elastic)
        self._document_id = document_id

    def require(self) -> Finding:
        """As `server`, but raises if there is no Elasticsearch: for commands that need it."""
        reply = self._elastic.call("GET", "/")
        if isinstance(reply, NoReply):
            raise ElasticsearchDown(reply.failure.error)
        if not reply.from_elasticsearch and reply.status not in (401, 403):
            raise WrongProduct(f"its reply is {reply.status}")
        return self._finding(reply)

    def server(self) -> Finding:
        """What answers at ELASTIC_URL. Bad if nothing answers, or it is not Elasticsearch."""
        reply = self._elastic.call("GET", "/")
        if isinstance(reply, NoReply):
            remedy = "Start Elasticsearch, or correct ELASTIC_URL. Events wait as OUTBOX_OUTAGE_POLICY says."
            return Finding("elasticsearch", Level.BAD, reply.failure.error, remedy)
        return self._finding(reply)

    def _finding(self, reply: Reply) -> Finding:
        if reply.status in (401, 403):
            detail = f"its reply is {reply.status}: the credentials are not accepted"
            remedy = "Set ELASTIC_API_KEY, or ELASTIC_USERNAME and ELASTIC_PASSWORD."
            return Finding("elasticsearch", Level.BAD, detail, remedy)
        if not reply.from_elasticsearch:
            return Finding("elasticsearch", Level.BAD, WRONG_PRODUCT, "See `outbox config print`.")
        return _version(reply)

    def versions(self, index: str, entities: Sequence[Mapping[str, Any]]) -> list[int | None]:
        ids = [(self._document_id(row["entity_type"], row["entity_id"]), row["routing"]) for row in entities]
        return list(self._indices.versions(index, ids))


def _version(reply: Reply) -> Finding:
    about = reply.body if isinstance(reply.body, dict) else {}
    number = str(about.get("version", {}).get("number", "unknown"))
    detail = f"Elasticsearch {number}, cluster {about.get('cluster_name', 'unknown')}"
    if number.partition(".")[0] not in MAJORS:
        return Finding("elasticsearch", Level.BAD, detail, "Elasticsearch 8 or 9 is needed.")
    return Finding("elasticsearch", Level.OK, detail)
