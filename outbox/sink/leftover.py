"""Decides whether an index is only what a write created against our template, so that it may be replaced.

Its settings alone do not say so: an index that a person made under the template is born with the same ones, and may be
filled, searched through an alias and blocked again for some work. It deletes nothing.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

from outbox.sink.client import Elastic, Reply, quoted

_SECONDS: Final = 5.0


class Leftover(Enum):
    NO = auto()  # it was not created so, or it is in use: it holds documents or has an alias
    YES = auto()
    UNCOUNTED = auto()  # nobody says whether it is empty


def leftover(elastic: Elastic, index: str, settings: Mapping[str, Any]) -> Leftover:
    """Of one index with these flat settings. Asks the server only if the settings fit."""
    if not elastic.dialect.is_auto_created(settings):
        return Leftover.NO
    aliases = elastic.call("GET", f"/{quoted(index)}/_alias", seconds=_SECONDS).content
    if aliases is None or index not in aliases:
        return Leftover.UNCOUNTED
    if aliases[index].get("aliases"):
        return Leftover.NO
    if (number := _count(elastic, index)) == 0:  # what is not searchable yet counts too
        refreshed = elastic.call("POST", f"/{quoted(index)}/_refresh", seconds=_SECONDS).content
        number = None if refreshed is None or _failed(refreshed) else _count(elastic, index)
    if number is None:
        return Leftover.UNCOUNTED
    return Leftover.NO if number else Leftover.YES


def _count(elastic: Elastic, index: str) -> int | None:
    reply = elastic.call("GET", f"/{quoted(index)}/_count", seconds=_SECONDS)
    if isinstance(reply, Reply) and reply.status == 503:  # its shards are only being made
        elastic.call("GET", f"/_cluster/health/{quoted(index)}?wait_for_status=yellow&timeout=4s", seconds=_SECONDS)
        reply = elastic.call("GET", f"/{quoted(index)}/_count", seconds=_SECONDS)
    found = reply.content
    if found is None or _failed(found):
        return None
    return found["count"] if isinstance(found.get("count"), int) else None


def _failed(found: Mapping[str, Any]) -> bool:
    shards = found.get("_shards")
    return not isinstance(shards, Mapping) or bool(shards.get("failed"))
