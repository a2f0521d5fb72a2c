"""Owns which of several nodes are in use: asks all before the first request, and each again while it is left out.

It sends no request of anybody else. Not the client's own NodePool: that one gives a node back to the traffic when its
pause is over, so that one that hangs costs a whole deadline each time; here it is asked first, apart from the requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import orjson
from elastic_transport import HttpHeaders
from elastic_transport._node import NodeApiResponse

from outbox.facts import Announce, NodeBack, NodeLeftOut, silent
from outbox.policy.nodes import RoundRobin
from outbox.policy.redact import summary
from outbox.ports import Clock, Finding, Level
from outbox.sink.exchange import DeadlineNode, NotSigned

ASK_SECONDS: Final = 5.0
LEAST_SECONDS: Final = 0.05  # less than this is not worth a request
# The key may not ask, or the node is busy. With any other refusal of `GET /` it is no search node.
_SAY_NOTHING: Final = (401, 403, 429)


class NodeWatch:
    """Nodes by their place in the list. Safe for several lanes."""

    def __init__(
        self,
        nodes: Mapping[str, DeadlineNode],
        login: Callable[[], str | None],
        announce: Announce = silent,
        first: int = 0,
        targets: Sequence[str] = (),
    ) -> None:
        self.nodes = tuple(nodes.values())
        self._names = tuple(nodes)
        self._login = login
        self._announce = announce
        self.clock: Clock = time.monotonic
        self._round = RoundRobin(len(nodes), first)
        self._lock = threading.Lock()  # guards the round, the clusters and the thread
        self._begun = False
        self._clusters: dict[int, _Cluster] = {}  # which cluster each node last said it belongs to
        self._settings = (
            f"/{quote(','.join(targets), safe=',')}/_settings/index.uuid?flat_settings=true&ignore_unavailable=true"
        )
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def next(self, tried: Sequence[int]) -> int | None:
        with self._lock:
            return self._round.next(tried)

    def begin(self, seconds: float = ASK_SECONDS) -> None:
        """Before the first request: one that hangs must not get it, and of two clusters neither may."""
        if not self._begun:
            for place in range(len(self.nodes)):
                self.ask(place, seconds)
            self._begun = True

    def is_left_out(self, place: int) -> bool:
        return self._round.is_left_out(place)

    def ask(self, place: int, seconds: float = ASK_SECONDS) -> tuple[str, NodeApiResponse | Exception]:
        """Why this node cannot be used (empty: it can), and what came. The node is left out or taken back by that."""
        why, reply, cluster = self._question(place, seconds)
        if isinstance(reply, NotSigned) and not self.is_left_out(place):
            return "", reply  # it was not asked: the request says what is wrong
        with self._lock:
            if cluster:
                self._clusters[place] = cluster
            else:
                self._clusters.pop(place, None)
        if why:
            self.leave_out(place, why)
        else:
            self.take_back(place)
        return why, reply

    def is_restless(self) -> bool:
        """Whether a node of the cluster goes or comes, as in a restart. Those in use are asked now: a reply about a
        shard on that node may be here before any request was sent to it."""
        for place in range(len(self.nodes)):
            if not self.is_left_out(place):
                self.ask(place)
        with self._lock:
            return self._round.is_restless(self.clock())

    def mixed(self) -> str:
        """Which nodes are of different clusters; empty: none. A cluster that was made anew has another id, so all are
        asked again before this is said."""
        if self._differ():
            for place in range(len(self.nodes)):
                self.ask(place)
        return self._differ()

    def leave_out(self, place: int, why: str) -> None:
        with self._lock:
            is_new = self._round.leave_out(place, self.clock())
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._ask_again, name="outbox-nodes", daemon=True)
                self._thread.start()
        if is_new:
            self._announce(NodeLeftOut(self._names[place], summary(why)))

    def take_back(self, place: int) -> None:
        with self._lock:
            seconds = self._round.take_back(place, self.clock())
        if seconds is not None:
            self._announce(NodeBack(self._names[place], seconds))

    def check(self) -> Iterator[Finding]:
        for place, name in enumerate(self._names):
            why, reply = self.ask(place)
            if isinstance(reply, NotSigned):
                continue  # it was not asked; the finding about the server says why
            if why:
                remedy = "It gets no requests until it answers. Start it, or remove it from ELASTIC_URL."
                yield Finding("node", Level.WARN, f"{name} is left out: {why}", remedy)
            else:
                yield Finding("node", Level.OK, f"{name} is in use")
        if differ := self.mixed():
            yield Finding("nodes", Level.BAD, differ, "Name the nodes of one cluster in ELASTIC_URL.")

    @property
    def shown(self) -> str:
        states = ("left out" if self.is_left_out(place) else "in use" for place in range(len(self.nodes)))
        return ", ".join(f"{name} {state}" for name, state in zip(self._names, states, strict=True))

    def close(self) -> None:
        self._closed.set()
        for node in self.nodes:
            node.close()
        if (thread := self._thread) is not None:
            thread.join(1.0)

    def _ask_again(self) -> None:
        while True:
            with self._lock:
                due_at = self._round.next_due()
                if due_at is None or self._closed.is_set():
                    self._thread = None
                    return
                due = self._round.due(self.clock())
            for place in due:
                self.ask(place)
            if not due:
                self._closed.wait(max(due_at - self.clock(), 0.01))

    def _question(self, place: int, seconds: float) -> tuple[str, NodeApiResponse | Exception, _Cluster | None]:
        """Where the key may not ask for the cluster's id, the targets' own ids are compared instead."""
        try:
            reply = self._get(place, "/", seconds)
        except Exception as error:
            # Its frames hold the request that waits for this answer, and that one's frames hold this error.
            return getattr(error, "message", None) or str(error), error.with_traceback(None), None
        why, cluster = _read(reply)
        if reply.meta.status == 403:
            with suppress(Exception):  # then it is not known
                cluster = _read_settings(self._get(place, self._settings, seconds))
        return why, reply, cluster

    def _get(self, place: int, path: str, seconds: float) -> NodeApiResponse:
        headers = HttpHeaders({"accept": "application/json"})
        if authorization := self._login():
            headers["authorization"] = authorization
        return self.nodes[place].request("GET", path, None, headers, max(seconds, LEAST_SECONDS))

    def _differ(self) -> str:
        """Only like is compared with like."""
        with self._lock:
            found = sorted(self._clusters.items())
        for by_index in (False, True):
            alike = [(place, cluster.id) for place, cluster in found if cluster.by_index is by_index]
            if len({cluster for _, cluster in alike}) > 1:
                said = ", ".join(f"{self._names[place]} of {cluster}" for place, cluster in alike)
                return f"ELASTIC_URL names nodes of different clusters: {said}"
        return ""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """By its own id, or by those of the targets in it."""

    id: str
    by_index: bool = False


def _read(reply: NodeApiResponse) -> tuple[str, _Cluster | None]:
    """Why this is no node to use, and its cluster; neither where it does not say."""
    if reply.meta.status in _SAY_NOTHING:
        return "", None
    if reply.meta.status != 200:
        return f"its reply is {reply.meta.status}", None
    about = _parsed(reply)
    cluster = about.get("cluster_uuid") if isinstance(about, dict) else None
    if not isinstance(cluster, str):
        return "its reply is not that of a search cluster", None
    return ("it has not joined a cluster yet", None) if cluster == "_na_" else ("", _Cluster(cluster))


def _read_settings(reply: NodeApiResponse) -> _Cluster | None:
    """None: there is no target in it, or the key may not see one."""
    found = _parsed(reply) if reply.meta.status == 200 else None
    if not isinstance(found, dict) or not found:
        return None
    ids = (f"index {name} ({about['settings']['index.uuid']})" for name, about in sorted(found.items()))
    return _Cluster(" and ".join(ids), by_index=True)


def _parsed(reply: NodeApiResponse) -> Any:
    try:
        return orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return None
