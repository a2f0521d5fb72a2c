"""Sends one webhook over HTTP to an address that was checked: pinned, bounded in time, no redirects, no retries."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from outbox.policy.backoff import retry_after_seconds
from outbox.policy.redact import cut
from outbox.policy.webhook import bad_url, is_allowed, is_public

_USER_AGENT: Final = "outbox-projector"
# Threads that a dead resolver may hold: glibc gives a lookup up after about 30 s, a plugin of its may never.
_lookups: Final = threading.BoundedSemaphore(4)


class Posted(NamedTuple):
    """The receiver's status, or why there is none. `refused`: the address is not one that we may send to."""

    status: int | None
    error: str = ""
    refused: bool = False
    retry_after_seconds: float = 0.0  # what the receiver asks for


class _NotAllowed(Exception):
    pass


def post(
    url: str, headers: Mapping[str, str], body: bytes, seconds: float, allowed_hosts: Collection[str] = ()
) -> Posted:
    """Any status is an answer. One deadline covers name lookup, all addresses, TLS and the reply up to the end of its
    headers, however slowly they come; the body of the reply is not read."""
    if wrong := bad_url(url, allowed_hosts):
        return Posted(None, f"refused: {wrong}", refused=True)
    deadline = _Deadline(seconds)
    try:
        return _exchange(url, headers, body, deadline, allowed_hosts)
    except _NotAllowed as refused:
        return Posted(None, f"refused: {refused}", refused=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # A connection that we cut, and the socket's own timeout, say anything but this.
        late = deadline.over or isinstance(error, TimeoutError)
        said = f"TimeoutError: no answer within {seconds:g} s" if late else f"{type(error).__name__}: {error}"
        return Posted(None, cut(said, 300))


class _Deadline:
    """The time that one delivery has."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._ends

    def left(self) -> float:
        """Seconds, more than none: a socket takes 0 for "do not wait"."""
        if self.over:
            raise TimeoutError
        return max(self._ends - time.monotonic(), 0.001)

    @contextmanager
    def cutting(self, sock: socket.socket) -> Iterator[None]:
        """Ends the connection at the deadline: a timeout on the socket starts again with every byte. The duplicate
        stays valid when TLS takes the socket over, so a handshake that drips is cut too."""
        seconds, same = self.left(), sock.dup()
        timer = threading.Timer(seconds, _hang_up, [same])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            same.close()


def _exchange(
    url: str, headers: Mapping[str, str], body: bytes, deadline: _Deadline, allowed_hosts: Collection[str]
) -> Posted:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    addresses = _checked(host, port, deadline, allowed_hosts)
    connection = http.client.HTTPConnection(host, port)
    connection.sock = sock = _connected(addresses, deadline)
    try:
        with deadline.cutting(sock):
            sock.settimeout(deadline.left())
            if parts.scheme == "https":
                connection.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            named = {"host": parts.netloc, "user-agent": _USER_AGENT, "connection": "close", **headers}
            connection.request("POST", target, body, named)
            reply = connection.getresponse()
            wait = retry_after_seconds(reply.headers.get("retry-after"), datetime.now(UTC))
            return Posted(reply.status, retry_after_seconds=wait)
    finally:
        connection.close()
        sock.close()


def _checked(host: str, port: int, deadline: _Deadline, allowed_hosts: Collection[str]) -> list[Any]:
    """Every address that the name has now; one that is not public refuses them all, unless the host is allowed."""
    found = _resolved(host, port, deadline)
    if not is_allowed(host, allowed_hosts):
        for *_, address in found:
            if not is_public(str(address[0])):
                raise _NotAllowed(
                    f"{host} has an address that is not public; OUTBOX_WEBHOOK_ALLOWED_HOSTS permits a private one"
                )
    return found


def _resolved(host: str, port: int, deadline: _Deadline) -> list[Any]:
    """The system's lookup takes no timeout, so it runs in a thread that is left behind when it is late. Daemon threads,
    because an executor's are waited for when the process ends."""
    if not _lookups.acquire(timeout=deadline.left()):
        raise TimeoutError
    answer: SimpleQueue[list[Any] | OSError | ValueError] = SimpleQueue()

    def look_up() -> None:
        try:
            answer.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:  # ValueError: a name that IDNA does not take
            answer.put(error)
        finally:
            _lookups.release()

    threading.Thread(target=look_up, name="webhook-lookup", daemon=True).start()
    try:
        found = answer.get(timeout=deadline.left())
    except Empty:
        raise TimeoutError from None
    if isinstance(found, Exception):
        raise found
    return found


def _connected(addresses: list[Any], deadline: _Deadline) -> socket.socket:
    """Connects to what was checked, never to a name: the name could have another address by now. Each address gets its
    share of the time that is left, so that a silent one does not take the next one's."""
    last: OSError = OSError("the name has no address")
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.left() / (len(addresses) - tried))
            sock.connect(address)
        except OSError as error:
            sock.close()
            last = error
        else:
            return sock
    raise last


def _hang_up(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
