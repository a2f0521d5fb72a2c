"""Owns the connection to one Elasticsearch or OpenSearch, of one node or several: credentials, which product it is, and
one call. It interprets no other reply."""

import base64
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson
from elastic_transport import ConnectionError as Broken
from elastic_transport import ConnectionTimeout, HttpHeaders, NodeConfig, TlsError
from elastic_transport.client_utils import create_user_agent, url_to_node_config

from outbox import __version__
from outbox.config import ElasticSettings, read_secret_file
from outbox.errors import ElasticsearchDown, OutboxError, WrongProduct
from outbox.facts import Announce, silent
from outbox.policy import product
from outbox.policy.classify import unreadable, whole
from outbox.policy.outcome import Failure, Reason
from outbox.policy.product import Product, Server
from outbox.policy.redact import summary
from outbox.ports import Finding
from outbox.sink.exchange import BadReply, DeadlineNode, NotConnected, NotSigned, Sign
from outbox.sink.node_watch import NodeWatch
from outbox.sink.nodes import CONNECT_SECONDS, NodeHung, Nodes, OtherCluster

ASK_SECONDS: Final = 5.0
_READS: Final = ("GET", "HEAD")
_BUSY: Final = (429, 502, 503, 504)


class NotAccepted(OutboxError):
    """The server does not accept the credentials, its user may not ask for the server's name, or there are none. Check
    ELASTIC_API_KEY, or ELASTIC_USERNAME and ELASTIC_PASSWORD, or where ELASTIC_AWS_REGION is set the credentials of
    AWS; docs/security.md names the privileges. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        """Parsed JSON, or the raw bytes: a proxy's HTML page must not hide its status."""
        try:
            return orjson.loads(self.raw)
        except orjson.JSONDecodeError:
            return self.raw

    @property
    def content(self) -> dict[str, Any] | None:
        """The object in a reply that says yes."""
        body = self.body if self.status < 300 else None
        return body if isinstance(body, dict) else None

    @property
    def is_busy(self) -> bool:
        return self.status in _BUSY

    def refusal(self, kind: type[OutboxError]) -> OutboxError:
        """With the server's reason, for commands; a busy server has refused nothing."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        reason = f"{self.status} {summary(error or 'no reason given')}"
        return ElasticsearchDown(reason) if self.is_busy else kind(reason)


@dataclass(frozen=True, slots=True)
class NoReply:
    """No readable reply. `sent`: the request may have arrived, and may still be applied. `elsewhere`: the node that did
    not reply is left out now, so that another one gets the next request."""

    failure: Failure
    sent: bool = True
    elsewhere: bool = False
    unidentified: bool = False  # because of what the server is, or because nobody says or may know it

    @property
    def content(self) -> None:
        return None

    def error(self) -> OutboxError:
        if self.unidentified and self.failure.reason is Reason.ES_CONFIG:
            return WrongProduct(self.failure.error)
        if self.failure.reason is Reason.ES_AUTH:  # nobody was asked, or nothing could be signed
            return NotAccepted(self.failure.error)
        return ElasticsearchDown(self.failure.error)


class Credentials:
    """The authorization header. The secret is read again when its file changes, because keys are rotated."""

    def __init__(self, settings: ElasticSettings) -> None:
        self._settings = settings
        self._file: Path | None = settings.api_key_file or settings.password_file
        self._stamp: tuple[int, int, int] | None = None  # unset: the file may have changed since the settings were read
        self._header = _authorization(settings, None)

    def header(self) -> str | None:
        """One `stat` per request (2 us). While the file cannot be read, the last secret is used."""
        stamp = _stamp(self._file)
        if stamp != self._stamp and self._file is not None:
            with suppress(OSError, ValueError):
                self._header = _authorization(self._settings, read_secret_file(self._file))
                self._stamp = stamp
        return self._header


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    try:
        found = file.stat() if file is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino, found.st_size) if found else None


def _authorization(settings: ElasticSettings, fresh: str | None) -> str | None:
    if settings.api_key is not None:
        return f"ApiKey {fresh or settings.api_key.get_secret_value()}"
    if settings.username is not None and settings.password is not None:
        pair = f"{settings.username}:{fresh or settings.password.get_secret_value()}"
        return "Basic " + base64.b64encode(pair.encode()).decode()
    return None


@dataclass(slots=True)
class Elastic:
    """One server. `call` never raises. `setting` is ELASTIC_PRODUCT, unless that is `auto`."""

    node: DeadlineNode | Nodes
    credentials: Credentials
    timeout_seconds: float
    setting: Product | None = None
    # How to speak to it. Before it has said anything: as to Elasticsearch, which is all that a read needs.
    dialect: product.Dialect = field(default=product.ELASTICSEARCH, init=False)
    _server: Server | None = field(default=None, init=False)

    def server(self, seconds: float | None = None) -> Server | Failure:
        """What the server is, asked before the first write. Keeps no failure."""
        return self._server or self._identify(seconds)

    def _identify(self, seconds: float | None) -> Server | Failure:
        limit = min(seconds or ASK_SECONDS, ASK_SECONDS)
        reply = self._exchange("GET", "/", seconds=limit)
        if isinstance(reply, NoReply):
            return reply.failure
        headers = self._permitted_headers(limit) if reply.status == 403 else reply.headers
        found = product.identify(reply.status, headers, reply.body, self.setting)
        if isinstance(found, Failure):
            return found
        if self._server is not None and found.product is not self._server.product:
            return product.changed(self._server, found)
        self._server, self.dialect = found, found.dialect
        return found

    def _permitted_headers(self, seconds: float) -> Mapping[str, str]:
        """Elasticsearch leaves its name out of a refusal. Who one is, every user and key may ask there."""
        reply = self._exchange("GET", "/_security/_authenticate", seconds=seconds)
        return reply.headers if isinstance(reply, Reply) else {}

    @property
    def shown(self) -> str | None:
        """Product and version, and of several nodes which are in use. None: it is not known yet."""
        if self._server is None:
            return None
        return f"{self._server} ({self.node.watch.shown})" if isinstance(self.node, Nodes) else str(self._server)

    def required(self) -> product.Dialect:
        """How to speak to it, for commands: asked if need be. Raises as `NoReply.error` says."""
        found = self.server()
        if isinstance(found, Failure):
            raise NoReply(found, sent=False, unidentified=True).error()
        return found.dialect

    def call(
        self, method: str, target: str, body: bytes | None = None, *, seconds: float | None = None
    ) -> Reply | NoReply:
        """One exchange through the client's node, without its transport.

        The transport would retry four times by default, copy the body twice, and raise if a reply is not JSON. Only
        what cannot be read is not a Reply. Nothing but a read is sent to a server before it is known what it is.
        """
        if method not in _READS and isinstance(unknown := self.server(seconds), Failure):
            return NoReply(unknown, sent=False, unidentified=True)
        reply = self._exchange(method, target, body, seconds)
        # The other product does not know our content type: nothing was done.
        is_strange = isinstance(reply, Reply) and reply.status == 406
        if is_strange and isinstance(unknown := self._identify(seconds), Failure):
            return NoReply(unknown, sent=False, unidentified=True)
        return reply

    def ask(self, method: str, target: str, body: Mapping[str, Any] | bytes | None = None) -> Reply:
        """As `call`, for commands: raises as `NoReply.error` says."""
        reply = self.call(method, target, json.dumps(body).encode() if isinstance(body, Mapping) else body)
        if isinstance(reply, NoReply):
            raise reply.error()
        return reply

    def content(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        refused: type[OutboxError],
        missing_is_fine: bool = False,
    ) -> dict[str, Any]:
        """The object in its reply, for commands: raises `refused` where it says no."""
        reply = self.ask(method, target, body)
        if reply.status == 404 and missing_is_fine:
            return {}
        if (found := reply.content) is None:
            raise reply.refusal(refused)
        return found

    def _exchange(
        self, method: str, target: str, body: bytes | None = None, seconds: float | None = None
    ) -> Reply | NoReply:
        dialect = self.dialect
        headers = HttpHeaders({"accept": dialect.json})
        if body is not None:
            headers["content-type"] = dialect.ndjson if target.partition("?")[0].endswith("/_bulk") else dialect.json
        if authorization := self.credentials.header():
            headers["authorization"] = authorization
        try:
            meta, raw = self.node.request(method, target, body, headers, seconds or self.timeout_seconds)
        except Exception as error:
            return _no_reply(error)
        return Reply(meta.status, meta.headers, raw)

    def is_restless(self) -> bool:
        """Whether one of several nodes goes or comes, as in a restart, and another one answers."""
        return isinstance(self.node, Nodes) and self.node.watch.is_restless()

    def check_nodes(self) -> Iterator[Finding]:
        if isinstance(self.node, Nodes):
            yield from self.node.watch.check()

    def close(self) -> None:
        self.node.close()


def connect(settings: ElasticSettings, lanes: int = 2, announce: Announce = silent) -> Elastic:
    """Builds the nodes; opens no connection. One connection more than lanes, for probes and the check at start."""
    credentials, sign = Credentials(settings), _signer(settings)
    setting = None if settings.product == "auto" else Product(settings.product)
    configs = {url: _config(settings, url, lanes) for url in settings.urls}
    node: DeadlineNode | Nodes
    if len(configs) == 1:
        node = DeadlineNode(configs[settings.urls[0]], sign=sign)
    else:
        several = {url: DeadlineNode(config, CONNECT_SECONDS, sign) for url, config in configs.items()}
        # Not all workers of a machine begin at the same node.
        first = secrets.randbelow(len(several))
        node = Nodes(NodeWatch(several, credentials.header, announce, first=first, targets=settings.targets))
    return Elastic(node, credentials, settings.timeout_seconds, setting)


def _signer(settings: ElasticSettings) -> Sign | None:
    """Late import: botocore is an extra, and few need it."""
    if settings.aws_region is None:
        return None
    from outbox.sink.signing import AwsSigner  # noqa: PLC0415

    return AwsSigner(settings.aws_region)


def _config(settings: ElasticSettings, url: str, lanes: int) -> NodeConfig:
    return url_to_node_config(url, use_default_ports_for_scheme=True).replace(
        ca_certs=str(settings.ca_certs) if settings.ca_certs else None,
        connections_per_node=lanes + 1,
        headers=HttpHeaders({"user-agent": create_user_agent("outbox-projector", __version__)}),
        request_timeout=settings.timeout_seconds,
    )


_NOT_SENT: Final = {OtherCluster: Reason.ES_CONFIG, NotSigned: Reason.ES_AUTH, NotConnected: Reason.CONNECT}
# OpenSSL's term for what is not trusted, and urllib3's two for a certificate of another name or of none.
_CERTIFICATE_TERMS: Final = ("CERTIFICATE", "HOSTNAME", "SUBJECTALTNAME")


def _no_reply(error: Exception) -> NoReply:
    match error:
        case OtherCluster() | NotSigned() | NotConnected():
            return NoReply(whole(_NOT_SENT[type(error)], error.message), sent=False)
        case BadReply():
            return NoReply(unreadable(error.message))
        case ConnectionTimeout():
            return NoReply(whole(Reason.TIMEOUT, error.message), elsewhere=isinstance(error, NodeHung))
        case TlsError() if any(term in error.message.upper() for term in _CERTIFICATE_TERMS):
            remedy = "the server's certificate is not trusted: check ELASTIC_CA_CERTS and ELASTIC_URL"
            return NoReply(whole(Reason.ES_CONFIG, f"{remedy}: {error.message}"), sent=False)
        case TlsError():
            return NoReply(whole(Reason.CONNECT, error.message), sent=False)
        case Broken():
            return NoReply(whole(Reason.CONNECT, error.message))
        case _:
            return NoReply(whole(Reason.UNKNOWN, f"{type(error).__name__}: {error}"))


def quoted(name: str) -> str:
    return quote(name, safe="")
