"""Several nodes of one cluster as one: requests go round, and what one node does not serve another one gets.

Decides which request may be sent twice: one that did not leave, a read, and a bulk, because equal external versions
pass. Which nodes are in use is known by `node_watch`; a reply is interpreted only as far as "this node cannot serve".
"""

from dataclasses import dataclass, field
from typing import Final

from elastic_transport import ConnectionError as Broken
from elastic_transport import ConnectionTimeout, HttpHeaders, TlsError
from elastic_transport._node import NodeApiResponse
from urllib3.exceptions import EmptyPoolError

from outbox.sink.exchange import NotConnected, NotSigned
from outbox.sink.node_watch import ASK_SECONDS, LEAST_SECONDS, NodeWatch

# A machine that is gone refuses nothing: with another node to turn to, this is the longest wait for a connection. It
# covers one lost SYN, which is sent again after one second.
CONNECT_SECONDS: Final = 3.0
_GATEWAY: Final = (502, 503, 504)
# Opening a point in time twice leaves one that ends by itself.
_READS: Final = ("/_mget", "/_search", "/_count", "/_has_privileges", "/_pit", "/_search/point_in_time")
_BULK: Final = "/_bulk"

_AT_A_NODE: Final = (Broken, ConnectionTimeout, NodeApiResponse)

Outcome = NodeApiResponse | Exception


class NodeHung(ConnectionTimeout):
    """No reply in time, and the node answers nothing else either. It is left out; another may get the request."""


class OtherCluster(Broken):
    """The addresses belong to different clusters: nothing is sent to any of them."""


class Nodes:
    """Asked as a single one is (`DeadlineNode`)."""

    def __init__(self, watch: NodeWatch) -> None:
        self.watch = watch

    def request(
        self, method: str, target: str, body: bytes | None, headers: HttpHeaders, seconds: float
    ) -> NodeApiResponse:
        self.watch.begin(min(ASK_SECONDS, seconds))
        outcome = _Passage(_Request(method, target, body, headers, seconds), self.watch).run()
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                del outcome  # its traceback holds this frame, and the frame the request: see `_without_frames`
        return outcome

    def close(self) -> None:
        self.watch.close()


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    target: str
    body: bytes | None
    headers: HttpHeaders
    seconds: float

    @property
    def is_read(self) -> bool:
        return self.method in ("GET", "HEAD") or self._path.endswith(_READS)

    @property
    def is_repeatable(self) -> bool:
        return self.is_read or self._path.endswith(_BULK)

    @property
    def _path(self) -> str:
        return self.target.partition("?")[0]


@dataclass(slots=True)
class _Passage:
    """One request, tried at each node at most once."""

    request: _Request
    watch: NodeWatch
    until: float = field(init=False)
    outcome: Outcome = field(init=False, default_factory=lambda: NotConnected("no node was tried"))
    tried: list[int] = field(init=False, default_factory=list)
    refusing: list[int] = field(init=False, default_factory=list)  # they answer, and refused this request
    broken: bool = field(init=False, default=False)  # its connection broke at a node that answers

    def __post_init__(self) -> None:
        self.until = self.watch.clock() + self.request.seconds

    def run(self) -> Outcome:
        while (place := self.watch.next(self.tried)) is not None and (self._left() >= LEAST_SECONDS or not self.tried):
            self.tried.append(place)
            if self._is_fit(place) and self._is_over(place):
                break
        return self.outcome

    def _left(self) -> float:
        return self.until - self.watch.clock()

    def _is_fit(self, place: int) -> bool:
        """A node that is left out gets a request only where no other is left, and is asked first. Where all are unfit,
        the last one still gets a read: its reply says what is wrong. The question is not on the request's time."""
        if not self.watch.is_left_out(place):
            return True
        began = self.watch.clock()
        why, found = self.watch.ask(place, min(ASK_SECONDS, self.request.seconds))
        self.until += self.watch.clock() - began
        if not why or (self.request.is_read and len(self.tried) == len(self.watch.nodes)):
            return True
        is_telling = isinstance(found, TlsError | NotSigned) or (
            isinstance(found, NodeApiResponse) and found.meta.status >= 500
        )
        if isinstance(self.outcome, NotConnected):  # else the request has arrived somewhere, and that is what counts
            self.outcome = found if is_telling else NotConnected(why)
        return False

    def _is_over(self, place: int) -> bool:
        """Sends it to this node. True: no other gets it."""
        if mixed := self.watch.mixed():
            self.outcome = OtherCluster(mixed)
            return True
        self.outcome = outcome = self._exchange(place)
        if not isinstance(outcome, Exception) and outcome.meta.status not in _GATEWAY:
            self._serves(place)
            return True
        if _never_left(outcome):
            self.watch.leave_out(place, str(outcome))
        elif isinstance(outcome, NotConnected) or not isinstance(outcome, _AT_A_NODE):
            return True  # no connection was free, or a bug of ours
        elif not self.watch.ask(place, min(ASK_SECONDS, self.request.seconds))[0]:  # else it is left out now
            if self._is_to_blame(outcome):
                return True
            if isinstance(outcome, Exception):
                self.broken = True
            else:
                self.refusing.append(place)
        return not self._may_go_on()

    def _exchange(self, place: int) -> Outcome:
        asked, seconds = self.request, max(self._left(), LEAST_SECONDS)
        try:
            node = self.watch.nodes[place]
            return node.request(asked.method, asked.target, asked.body, asked.headers, seconds)
        except Exception as error:
            return error.with_traceback(None)  # its frames hold the request, and `self` holds it

    def _is_to_blame(self, outcome: Outcome) -> bool:
        """The request, where the node answers others. A connection may break by itself, once: if it breaks at a second
        node, it is the request; but no read, of which none is too much for a node. A node that has just started may
        take seconds for its first reads; a bulk that timed out is split by who sent it."""
        if self.request.is_read:
            return False
        return isinstance(outcome, ConnectionTimeout) or (isinstance(outcome, Broken) and self.broken)

    def _may_go_on(self) -> bool:
        """A read that used up its time gets it anew at the next node; a bulk is sent again by who knows how much time
        its batch has left."""
        if isinstance(self.outcome, ConnectionTimeout):
            if not self.request.is_read:
                if self.request.is_repeatable:
                    self.outcome = NodeHung(self.outcome.message, errors=(self.outcome,))
                return False
            self.until = self.watch.clock() + self.request.seconds
        return self.request.is_repeatable or _never_left(self.outcome)

    def _serves(self, place: int) -> None:
        if self.watch.is_left_out(place):
            self.watch.take_back(place)
        for other in self.refusing:
            self.watch.leave_out(other, "it refused what another node accepted")


def _never_left(outcome: Outcome) -> bool:
    if isinstance(outcome, NotConnected):
        return not any(isinstance(error, EmptyPoolError) for error in outcome.errors)
    return isinstance(outcome, TlsError)
