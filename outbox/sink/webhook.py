"""Sends one webhook over HTTP to an address that was looked at: pinned, bounded in time, no redirects, no retries."""

import http.client
import socket
import ssl
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from outbox.policy.redact import cut
from outbox.policy.webhook import bad_url, is_allowed, is_public, retry_after_seconds

_USER_AGENT: Final = "outbox-projector"


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
    """Any status is an answer. The deadline counts to the end of the headers; the body of the reply is not read."""
    if wrong := bad_url(url, allowed_hosts):
        return Posted(None, f"refused: {wrong}", refused=True)
    try:
        return _exchange(url, headers, body, seconds, allowed_hosts)
    except _NotAllowed as refused:
        return Posted(None, f"refused: {refused}", refused=True)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Posted(None, cut(f"{type(error).__name__}: {error}", 300))


def _exchange(
    url: str, headers: Mapping[str, str], body: bytes, seconds: float, allowed_hosts: Collection[str]
) -> Posted:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    addresses = _looked_at(host, port, allowed_hosts)
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    # A timeout on the socket starts again with every byte; this one ends the whole exchange.
    late = threading.Event()
    timer = threading.Timer(seconds, _hang_up, [connection, late])
    timer.daemon = True
    timer.start()
    try:
        connection.sock = _connected(addresses, seconds)
        if parts.scheme == "https":
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        named = {"host": parts.netloc, "user-agent": _USER_AGENT, "connection": "close", **headers}
        connection.request("POST", target, body, named)
        reply = connection.getresponse()
        wait = retry_after_seconds(reply.headers.get("retry-after"), datetime.now(UTC))
        return Posted(reply.status, retry_after_seconds=wait)
    except (OSError, http.client.HTTPException) as error:
        if late.is_set() or isinstance(error, TimeoutError):  # the socket's own may be first
            raise TimeoutError(f"no answer within {seconds:g} s") from error
        raise
    finally:
        timer.cancel()
        connection.close()


def _looked_at(host: str, port: int, allowed_hosts: Collection[str]) -> list[Any]:
    """Every address that the name has now; one that is not public refuses them all, unless the host is allowed."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not is_allowed(host, allowed_hosts):
        for *_, address in found:
            if not is_public(str(address[0])):
                raise _NotAllowed(
                    f"{host} has an address that is not public; OUTBOX_WEBHOOK_ALLOWED_HOSTS permits a private one"
                )
    return found


def _connected(addresses: list[Any], seconds: float) -> socket.socket:
    """Connects to what was looked at, never to a name: the name could have another address by now."""
    last: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(seconds)
        try:
            sock.connect(address)
        except OSError as error:
            sock.close()
            last = error
        else:
            return sock
    raise last


def _hang_up(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
