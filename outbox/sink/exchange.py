"""Owns one HTTP exchange: one deadline from connect to last byte, a limited reply size, and where a signature is asked
for, that it is of the very bytes that are sent. It never retries."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final

import urllib3
from elastic_transport import (
    ApiResponseMeta,
    ConnectionTimeout,
    HttpHeaders,
    NodeConfig,
    TlsError,
    TransportError,
    Urllib3HttpNode,
)
from elastic_transport import ConnectionError as Broken
from elastic_transport._node import NodeApiResponse
from urllib3.exceptions import EmptyPoolError
from urllib3.util.retry import Retry

LARGEST_REPLY_BYTES: Final = 32 * 1024 * 1024
_CHUNK_BYTES: Final = 256 * 1024
_LEAST_SECONDS: Final = 0.001  # a timeout of 0 would mean "do not block" to a socket

# Method, address, headers and body of a request -> the headers that sign it.
Sign = Callable[[str, str, Mapping[str, str], bytes], Mapping[str, str]]


class NotConnected(Broken):
    """No connection was made: nothing was sent."""


class NotSigned(TransportError):
    """There is nothing to sign with, so nothing was sent. It says nothing of the node."""


class BadReply(Broken):
    """The reply was cut, undecodable or too large, so its content is unknown."""


class _RequestDeadline(threading.local):
    at = float("inf")
    connected_at = float("inf")  # until when a new connection must be there

    def remaining(self, *, connecting: bool = False) -> float:
        left = (min(self.at, self.connected_at) if connecting else self.at) - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request's deadline has passed")
        return min(max(left, _LEAST_SECONDS), 3600.0)


_DEADLINE: Final = _RequestDeadline()


class _Socket(socket.socket):
    """urllib3 gives each `recv` the whole timeout, so a server that sends one byte per second would never time out."""

    def recv_into(self, *args: Any, **options: Any) -> int:
        self.settimeout(_DEADLINE.remaining())
        return super().recv_into(*args, **options)

    def sendall(self, *args: Any, **options: Any) -> None:
        self.settimeout(_DEADLINE.remaining())
        return super().sendall(*args, **options)


class _TlsSocket(ssl.SSLSocket):
    """The same for TLS, whose `sendall` is a loop over `send`."""

    def recv_into(self, *args: Any, **options: Any) -> int:
        self.settimeout(_DEADLINE.remaining())
        return super().recv_into(*args, **options)

    def send(self, *args: Any, **options: Any) -> int:
        self.settimeout(_DEADLINE.remaining())
        return super().send(*args, **options)


class _Connecting:
    """A host name may have several addresses; urllib3 gives each of them the whole timeout."""

    def _new_conn(self) -> socket.socket:
        conn: Any = self
        try:
            return _connect(conn._dns_host, conn.port, conn.socket_options)
        except TimeoutError as error:
            raise NotConnected(f"connecting to {conn.host}:{conn.port} timed out", errors=(error,)) from error
        except OSError as error:
            told = error.strerror or str(error)  # without "[Errno 111]", which redaction would mask as a value
            raise NotConnected(f"no connection to {conn.host}:{conn.port}: {told}", errors=(error,)) from error


def _connect(host: str, port: int, options: Any) -> socket.socket:
    last: OSError = OSError("the host name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        connection = _Socket(family, kind, protocol)
        try:
            for option in options or ():
                connection.setsockopt(*option)
            connection.settimeout(_DEADLINE.remaining(connecting=True))
            connection.connect(address)
        except OSError as error:
            connection.close()
            last = error
        else:
            return connection
    raise last


class DeadlineNode(Urllib3HttpNode):
    """The client's own node, except that its timeout covers the whole exchange and its reply size is limited."""

    def __init__(self, config: NodeConfig, connect_seconds: float = float("inf"), sign: Sign | None = None) -> None:
        super().__init__(config)
        self._connect_seconds = connect_seconds
        self._sign = sign
        pool: Any = self.pool
        pool.ConnectionCls = type("Connection", (_Connecting, pool.ConnectionCls), {})
        if config.scheme == "https":
            pool.conn_kw["ssl_context"].sslsocket_class = _TlsSocket

    def request(
        self, method: str, target: str, body: bytes | None, headers: HttpHeaders, seconds: float
    ) -> NodeApiResponse:
        started = time.monotonic()
        _DEADLINE.at = started + seconds
        _DEADLINE.connected_at = started + self._connect_seconds
        try:
            status, reply_headers, data = self._exchange(method, target, body, headers)
        except (BadReply, NotSigned, NotConnected) as error:
            _without_frames(error)
            raise  # not `from error`: an error that is its own cause is a cycle, which keeps its callers' frames
        except Exception as error:
            raise _translated(_without_frames(error)) from error
        finally:
            _DEADLINE.at = float("inf")
        took = time.monotonic() - started
        return NodeApiResponse(ApiResponseMeta(status, "1.1", reply_headers, took, self.config), data)

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: HttpHeaders
    ) -> tuple[int, HttpHeaders, bytes]:
        sent = self._headers.copy()
        sent.update(headers)
        if self._sign is not None:
            sent.update(self._signed(self._sign, method, target, sent, body or b""))
        pool: Any = self.pool
        response = pool.urlopen(
            method,
            self.path_prefix + target,
            body=body or None,
            retries=Retry(False),
            redirect=False,
            headers=sent,
            timeout=urllib3.Timeout(total=_DEADLINE.remaining()),
            pool_timeout=_DEADLINE.remaining(),
            preload_content=False,
        )
        try:
            data = _read(response)
        except BaseException:
            # Not read to the end: its connection must not serve the next request.
            response.close()
            raise
        finally:
            response.release_conn()
        return response.status, HttpHeaders(response.headers), data

    def _signed(self, sign: Sign, method: str, target: str, headers: HttpHeaders, body: bytes) -> Mapping[str, str]:
        """Here and no earlier: of several nodes, only now is it known which one is asked."""
        signed = sign(method, self.base_url + target, headers, body)
        try:
            _DEADLINE.remaining()
        except TimeoutError as late:
            raise NotSigned(
                "to find or renew the credentials took longer than the request may: nothing was sent"
            ) from late
        return signed


def _read(response: urllib3.BaseHTTPResponse) -> bytes:
    """In decoded chunks, so that a small gzip body that unpacks to gigabytes is noticed in time."""
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := response.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > LARGEST_REPLY_BYTES:
                raise BadReply(f"larger than {LARGEST_REPLY_BYTES} bytes")
            _DEADLINE.remaining()
            chunks.append(chunk)
    except (urllib3.exceptions.ProtocolError, urllib3.exceptions.DecodeError) as error:
        _DEADLINE.remaining()  # a passed deadline is reported as such
        raise BadReply(f"cut or undecodable after {size} bytes") from error
    return b"".join(chunks)


def _without_frames(error: Exception) -> Exception:
    """urllib3's frames name the error whose traceback holds them, and through them every caller with its request: a
    cycle, which lives until the collector's next run. With a slow link four documents of 30 MB, sent one by one, grew a
    worker from 141 to 378 MB, and the kernel ended it at its memory limit."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__, link = None, link.__cause__ or link.__context__
    return error


def _translated(error: Exception) -> Exception:
    """As the client's own exceptions, plus NotConnected: nothing was sent."""
    if isinstance(error, EmptyPoolError):
        return NotConnected("every connection to the server is in use", errors=(error,))
    if time.monotonic() >= _DEADLINE.at or isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
        return ConnectionTimeout("no complete reply before the deadline", errors=(error,))
    if isinstance(error, ssl.SSLError | urllib3.exceptions.SSLError):
        return TlsError(str(error), errors=(error,))
    return Broken(_words(error), errors=(error,))


def _words(error: Exception) -> str:
    """In plain words: urllib3 quotes the repr of what it met, of which redaction leaves `('***'))`."""
    match error.args[-1:]:
        case (OSError() as cause,):
            return f"the connection broke: {cause.strerror or cause}"
        case (HTTPException(),):
            return "the connection broke: what came is no HTTP reply"
        case _:
            return str(error)
