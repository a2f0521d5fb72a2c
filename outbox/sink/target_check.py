"""Knows the target indexes and whether they can be written to. It writes and creates nothing."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from outbox.policy.classify import Split, classify_request, unreadable, whole
from outbox.policy.outcome import Failure, Reason
from outbox.sink.client import Elastic, NoReply, Reply, quoted
from outbox.sink.leftover import Leftover, leftover

PROBE_SECONDS: Final = 5.0
FRESH_SECONDS: Final = 5.0
_PRIVILEGES: Final = ("index", "delete")
# They need the rights of a write and change nothing, because no document has this sequence number: the reply is a 409,
# or a 403 without the rights.
_NEVER: Final = b'{"_id":"outbox-probe","if_seq_no":9007199254740991,"if_primary_term":1}'
_CONFLICTS: Final = b'{"index":%b}\n{}\n{"delete":%b}\n' % (_NEVER, _NEVER)
# Blocks that stop writes, and how to name them.
_BLOCKS: Final = {
    "index.blocks.write": "a write block",
    "index.blocks.read_only": "a read-only block",
    "index.blocks.read_only_allow_delete": "the disk's flood stage (read_only_allow_delete)",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What the server last reported for one name. Neither alias nor index: it did not exist."""

    alias: bool = False
    exists: bool = False
    seen_at: float = 0.0


class Targets:
    """Queries and caches. Safe for several lanes: the worst race is one query too many."""

    def __init__(self, elastic: Elastic, clock: Callable[[], float] = time.monotonic) -> None:
        self._elastic = elastic
        self._clock = clock
        self._lock = threading.Lock()
        self.seen: dict[str, Target] = {}
        self._told: dict[str, Reason] = {}

    def known(
        self, name: str, *, fresh_seconds: float | None = None, seconds: float = PROBE_SECONDS
    ) -> Target | Failure:
        """The target, queried once; again if the cached answer is older than `fresh_seconds`."""
        known = self.seen.get(name)
        if known and not known.exists:
            fresh_seconds = FRESH_SECONDS  # a person may be creating it
        if known and (fresh_seconds is None or self._clock() - known.seen_at < fresh_seconds):
            return known
        answer = self._ask(f"/{quoted(name)}/_alias", min(seconds, PROBE_SECONDS))
        if isinstance(answer, Failure):
            return self._unseen(name, answer)
        return self._remember(name, Target(name not in answer, bool(answer), self._clock()))

    def refused(self, name: str, reason: Reason) -> None:
        """A write got this error: the next probe checks for it, and the cached target is dropped."""
        with self._lock:
            self._told[name] = reason
            self.seen.pop(name, None)

    def answers(self) -> bool:
        """Whether the server answers at all. A refusal counts; a proxy without a server does not."""
        reply = self._elastic.call("HEAD", "/", seconds=PROBE_SECONDS)
        return isinstance(reply, Reply) and reply.status < 500

    def probe(self, name: str) -> Failure | None:
        """Why this target cannot be written to now, or None. Needs only view_index_metadata."""
        settings = self._ask(f"/{quoted(name)}/_settings?flat_settings=true")
        if isinstance(settings, Failure):
            if settings.reason is Reason.ES_INDEX_MISSING and self._told.get(name) is not Reason.ES_INDEX_MISSING:
                # Elasticsearch may be allowed to create it: only a refused write shows that it is not.
                return None
            if settings.reason is Reason.ES_AUTH and self._allowed(name) is True:
                settings = {}
            else:
                return settings
        for index, found in settings.items():
            if failure := self._unusable(name, index, found.get("settings", {})):
                return failure
        if self._told.get(name) is Reason.ES_AUTH and self._may_write(name) is False:
            return whole(Reason.ES_AUTH, f"{self._elastic.dialect.no_write} on index [{name}]")
        if settings and (failure := self._without_write_index(name)):
            return failure
        with self._lock:
            self._told.pop(name, None)
            self.seen.pop(name, None)
        return None

    def _without_write_index(self, name: str) -> Failure | None:
        answer = self._ask(f"/{quoted(name)}/_alias")
        if isinstance(answer, Failure):
            return answer
        aliases = [found.get("aliases", {}).get(name, {}) for found in answer.values()]
        if name in answer or any(alias.get("is_write_index") for alias in aliases):
            return None
        if len(aliases) == 1 and aliases[0].get("is_write_index") is not False:
            return None
        return whole(Reason.ES_CONFIG, f"no write index is defined for alias [{name}]")

    def _unusable(self, name: str, index: str, settings: Mapping[str, Any]) -> Failure | None:
        kind = leftover(self._elastic, index, settings)
        if kind is Leftover.NO:
            return _closed_or_blocked(index, settings)
        state = "empty and blocked" if kind is Leftover.YES else "blocked, and empty as far as is known"
        text = (
            f"index [{index}] was created by a write, not by a person: it is {state}, as good as missing. Run `outbox"
            f" index create {name}`, which replaces it; if only the alias is gone, put it back (runbook OutboxPaused)"
        )
        return whole(Reason.ES_INDEX_MISSING, text)

    def _may_write(self, name: str) -> bool | None:
        """Of an index that is there. None: nobody says."""
        if self._elastic.dialect.asks_privileges:
            return self._allowed(name)
        path = f"/{quoted(name)}/_bulk?filter_path=items.*.status,items.*.error.type"
        reply = self._elastic.call("PUT", path, _CONFLICTS, seconds=PROBE_SECONDS)
        if not isinstance(reply, Reply):
            return None
        items = reply.body.get("items") if isinstance(reply.body, dict) else None
        return reply.status != 403 and not any(map(_forbidden, items if isinstance(items, list) else ()))

    def _allowed(self, name: str) -> bool | None:
        """Every key of Elasticsearch may query its own privileges. None: there is no security, or no answer."""
        if not self._elastic.dialect.asks_privileges:
            return None
        asked = orjson.dumps({"index": [{"names": [name], "privileges": _PRIVILEGES}]})
        found = self._elastic.call("POST", "/_security/user/_has_privileges", asked, seconds=PROBE_SECONDS).content
        return None if found is None else bool(found.get("has_all_requested"))

    def _unseen(self, name: str, failure: Failure) -> Target | Failure:
        """A missing index may be created by the write; a key that may not read metadata may still write."""
        if failure.reason is Reason.ES_INDEX_MISSING or (
            failure.reason is Reason.ES_AUTH and self._allowed(name) is True
        ):
            return self._remember(name, Target(seen_at=self._clock()))
        return failure

    def _remember(self, name: str, target: Target) -> Target:
        with self._lock:
            self.seen[name] = target
        return target

    def _ask(self, path: str, seconds: float = PROBE_SECONDS) -> Mapping[str, Any] | Failure:
        reply = self._elastic.call("GET", path, seconds=seconds)
        if isinstance(reply, NoReply):
            return reply.failure
        server = self._elastic.server(seconds)
        if isinstance(server, Failure):
            return server
        if reply.status == 200 and isinstance(reply.body, dict):
            return reply.body
        if reply.status == 200:
            return unreadable("not an object")
        verdict = classify_request(reply.status, reply.body, reply.headers)
        return verdict.alone if isinstance(verdict, Split) else verdict


def _forbidden(item: Any) -> bool:
    result = next(iter(item.values()), None) if isinstance(item, dict) else None
    error = result.get("error") if isinstance(result, dict) else None
    return isinstance(error, dict) and error.get("type") == "security_exception"


def _closed_or_blocked(index: str, settings: Mapping[str, Any]) -> Failure | None:
    if settings.get("index.verified_before_close") == "true":
        return whole(Reason.ES_CONFIG, f"index [{index}] is closed")
    for setting, name in _BLOCKS.items():
        if settings.get(setting) == "true":
            return whole(Reason.ES_BLOCKED, f"{name} on index [{index}]")
    return None
