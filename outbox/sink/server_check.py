"""Checks the server for `outbox doctor`: product and version, the versions of documents. Writes nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outbox.errors import ElasticsearchDown
from outbox.policy.document import Address
from outbox.policy.outcome import Failure, Reason
from outbox.policy.product import Server
from outbox.ports import Finding, Level
from outbox.sink.client import Elastic, NoReply, Reply
from outbox.sink.documents import versions

_REMEDIES = {
    Reason.ES_AUTH: "Correct the credentials, or grant what is missing (docs/security.md).",
    Reason.ES_CONFIG: "See `outbox config print`.",
}


class ElasticServerCheck:
    def __init__(self, elastic: Elastic, document_id: Callable[[str, str], str]) -> None:
        self._elastic = elastic
        self._document_id = document_id

    def require(self) -> Finding:
        """As `server`, but raises if there is no server of ours: for commands that need it."""
        reply, known = self._elastic.ask("GET", "/"), self._elastic.server()
        if isinstance(known, Failure) and known.reason is not Reason.ES_AUTH:
            raise NoReply(known, unidentified=True).error()
        return _finding(reply, known)

    def server(self) -> Finding:
        """What answers at ELASTIC_URL. Bad if nothing answers, or neither Elasticsearch nor OpenSearch."""
        reply = self._elastic.call("GET", "/")
        if isinstance(reply, NoReply):
            remedy = "Start the search server, or correct ELASTIC_URL. Events wait as OUTBOX_OUTAGE_POLICY says."
            if reply.failure.reason is Reason.ES_AUTH:  # nothing could be signed
                remedy = _REMEDIES[Reason.ES_AUTH]
            return Finding("elasticsearch", Level.BAD, reply.failure.error, remedy)
        return _finding(reply, self._elastic.server())

    def versions(self, index: str, entities: Sequence[Mapping[str, Any]]) -> list[int | None]:
        """Raises ElasticsearchDown."""
        asked = [
            Address(index, self._document_id(row["entity_type"], row["entity_id"]), row["routing"]) for row in entities
        ]
        if (found := versions(self._elastic, asked)) is None:
            raise ElasticsearchDown("it does not say the versions of documents")
        return found


def _finding(reply: Reply, known: Server | Failure) -> Finding:
    if isinstance(known, Failure):
        remedy = _REMEDIES.get(known.reason, "Events wait as OUTBOX_OUTAGE_POLICY says.")
        return Finding("elasticsearch", Level.BAD, known.error, remedy)
    if reply.status == 401:
        detail = "its reply is 401: the credentials are not accepted"
        remedy = "Set ELASTIC_API_KEY, or ELASTIC_USERNAME and ELASTIC_PASSWORD, or ELASTIC_AWS_REGION."
        return Finding("elasticsearch", Level.BAD, detail, remedy)
    about = reply.body if isinstance(reply.body, dict) else {}
    if reply.status == 403:
        remedy = "Writing works without it; grant cluster:monitor/main to see the version here."
        detail = f"{known}{'' if known.number else ' of unknown version'}; GET / is not permitted"
        return Finding("elasticsearch", Level.WARN, detail, remedy)
    detail = f"{known}{'' if known.number else ' of unknown version'}, cluster {about.get('cluster_name', 'unknown')}"
    return Finding("elasticsearch", Level.OK, detail)
