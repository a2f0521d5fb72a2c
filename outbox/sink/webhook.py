"""Sends one webhook over HTTP to a checked, pinned address, with one deadline. No redirects, no retries."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from outbox.policy.backoff import retry_after_seconds
from outbox.policy.redact import cut
from outbox.policy.webhook import Posted, bad_url, is_allowed, is_public

_USER_AGENT: Final = "outbox-projector"
# Threads that a dead DNS resolver may block: glibc gives up after about 30 s, an NSS plugin perhaps never.
_lookups: Final = threading.BoundedSemaphore(4)


class _NotAllowed(Exception):
    pass


def post(
    url: str, headers: Mapping[str, str], body: bytes, seconds: float, allowed_hosts: Collection[str] = ()
) -> Posted:
    """Any status counts as a reply. One deadline covers DNS, all addresses, TLS and the reply's headers, however slowly
    they arrive. The body of the reply is not read."""
    if wrong := bad_url(url, allowed_hosts):
        return Posted(None, f"refused: {wrong}", refused=True)
    deadline = _DeliveryDeadline(seconds)
    try:
        return _exchange(url, headers, body, deadline, allowed_hosts)
    except _NotAllowed as refused:
        return Posted(None, f"refused: {refused}", refused=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        # A connection that we closed, or the socket's own timeout, raises various errors; report the deadline instead.
        late = deadline.over or isinstance(error, TimeoutError)
        reason = f"TimeoutError: no reply within {seconds:g} s" if late else f"{type(error).__name__}: {error}"
        return Posted(None, cut(reason, 300))


class _DeliveryDeadline:
    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._ends

    def left(self) -> float:
        """Seconds, more than 0: for a socket 0 means "do not wait"."""
        if self.over:
            raise TimeoutError
        return max(self._ends - time.monotonic(), 0.001)

    @contextmanager
    def closing(self, sock: socket.socket) -> Iterator[None]:
        """Closes the connection at the deadline, because a socket's timeout restarts with every byte. The duplicate
        stays valid when TLS takes over the socket, so a slow handshake is closed too."""
        seconds, same = self.left(), sock.dup()
        timer = threading.Timer(seconds, _close, [same])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            same.close()


def _exchange(
    url: str, headers: Mapping[str, str], body: bytes, deadline: _DeliveryDeadline, allowed_hosts: Collection[str]
) -> Posted:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    addresses = _checked(host, port, deadline, allowed_hosts)
    connection = http.client.HTTPConnection(host, port)
    connection.sock = sock = _connected(addresses, deadline)
    try:
        with deadline.closing(sock):
            sock.settimeout(deadline.left())
            if parts.scheme == "https":
                connection.sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            named = {"host": parts.netloc, "user-agent": _USER_AGENT, "connection": "close", **headers}
            connection.request("POST", target, body, named)
            with connection.getresponse() as reply:
                wait = retry_after_seconds(reply.headers.get("retry-after"), datetime.now(UTC))
                return Posted(reply.status, retry_after_seconds=wait)
    finally:
        connection.close()
        sock.close()


def _checked(host: str, port: int, deadline: _DeliveryDeadline, allowed_hosts: Collection[str]) -> list[Any]:
    """All current addresses of the host. If one is not public, all are refused, unless the host is allowed."""
    found = _resolved(host, port, deadline)
    if not is_allowed(host, allowed_hosts):
        for *_, address in found:
            if not is_public(str(address[0])):
                raise _NotAllowed(
                    f"{host} has an address that is not public; OUTBOX_WEBHOOK_ALLOWED_HOSTS can permit it"
                )
    return found


def _resolved(host: str, port: int, deadline: _DeliveryDeadline) -> list[Any]:
    """The system's DNS lookup has no timeout, so it runs in a thread that is abandoned when it is late. It is a daemon
    thread, because the process would wait for an executor's threads at its end."""
    if not _lookups.acquire(timeout=deadline.left()):
        raise TimeoutError
    answer: Future[list[Any]] = Future()

    def look_up() -> None:
        try:
            answer.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:  # ValueError: a name that IDNA rejects
            answer.set_exception(error)
        finally:
            _lookups.release()

    threading.Thread(target=look_up, name="webhook-lookup", daemon=True).start()
    return answer.result(deadline.left())


def _connected(addresses: list[Any], deadline: _DeliveryDeadline) -> socket.socket:
    """Connects to a checked address, never to the name: the name could have another address by now. Each address gets
    its share of the remaining time, so that a silent one does not use up the time of the next."""
    last: OSError = OSError("the host name has no address")
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


def _close(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
