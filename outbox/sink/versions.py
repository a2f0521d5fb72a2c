"""Asks Elasticsearch which versions it holds, without the documents. Writes nothing; no answer is no error."""

from collections.abc import Sequence
from typing import Any, Final

from outbox.policy.document import Address
from outbox.sink.client import Elastic, NoReply, dumps

MOST_A_REQUEST: Final = 1_000
_TARGET: Final = "/_mget?_source=false&filter_path=docs._version,docs.found,docs.error.type"


def versions(elastic: Elastic, addresses: Sequence[Address], *, seconds: float = 10.0) -> list[int | None] | None:
    """The version of each document in order, None where there is none; None in all when nobody answers."""
    found: list[int | None] = []
    for start in range(0, len(addresses), MOST_A_REQUEST):
        part = addresses[start : start + MOST_A_REQUEST]
        reply = elastic.call("POST", _TARGET, dumps({"docs": [_asked(each) for each in part]}), seconds=seconds)
        if isinstance(reply, NoReply) or reply.status != 200 or not isinstance(reply.body, dict):
            return None
        docs = reply.body.get("docs")
        if not isinstance(docs, list) or len(docs) != len(part):
            return None
        found += [_version(doc) for doc in docs]
    return found


def _asked(address: Address) -> dict[str, str]:
    routing = {} if address.routing is None else {"routing": address.routing}
    return {"_index": address.index, "_id": address.id, **routing}


def _version(doc: Any) -> int | None:
    version = doc.get("_version") if isinstance(doc, dict) and doc.get("found") else None
    return version if isinstance(version, int) else None
