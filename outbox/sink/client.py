"""Owns the connection to one Elasticsearch, of one node or several: client, credentials and one call. It interprets no
reply."""

import base64
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from elastic_transport import BaseNode, ConnectionTimeout, HttpHeaders, NodeConfig, TlsError
from elastic_transport import ConnectionError as Broken
from elastic_transport.client_utils import create_user_agent, url_to_node_config

from outbox import __version__
from outbox.config import ElasticSettings, read_secret_file
from outbox.facts import Announce, silent
from outbox.policy.classify import unreadable, whole
from outbox.policy.outcome import Failure, Reason
from outbox.ports import Finding
from outbox.sink.exchange import BadReply, DeadlineNode, NotConnected
from outbox.sink.nodes import CONNECT_SECONDS, NodeHung, Nodes, OtherCluster

if TYPE_CHECKING:
    from elasticsearch import Elasticsearch

PRODUCT_HEADER: Final = "x-elastic-product"
_JSON: Final = "application/vnd.elasticsearch+json; compatible-with=8"
_NDJSON: Final = "application/vnd.elasticsearch+x-ndjson; compatible-with=8"


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP reply with any status and any content."""

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
    def from_elasticsearch(self) -> bool:
        return self.headers.get(PRODUCT_HEADER) == "Elasticsearch"


@dataclass(frozen=True, slots=True)
class NoReply:
    """No readable reply. `sent`: the request may have arrived, and may still be applied. `elsewhere`: the node that did
    not reply is left out now, so that another one gets the next request."""

    failure: Failure
    sent: bool = True
    elsewhere: bool = False


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
            try:
                self._header = _authorization(self._settings, read_secret_file(self._file))
                self._stamp = stamp
            except (OSError, ValueError):
                return self._header
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
    """One server. `api` is the official client, for commands; `call` never raises."""

    node: BaseNode
    credentials: Credentials
    timeout_seconds: float
    _client: "Elasticsearch | None" = field(default=None, init=False)

    @property
    def api(self) -> "Elasticsearch":
        """Raises the client's own exceptions, including the one for a wrong product."""
        if self._client is None:
            self._client = self._new_client()
        authorization = self.credentials.header()
        return self._client.options(headers={"authorization": authorization}) if authorization else self._client

    def _new_client(self) -> "Elasticsearch":
        """Late import: a projector never needs it, and importing the package takes 0.1 s of CPU."""
        from elasticsearch import Elasticsearch  # noqa: PLC0415

        configs = self.node.configs if isinstance(self.node, Nodes) else [self.node.config]
        return Elasticsearch(
            configs,
            node_class=DeadlineNode,
            request_timeout=self.timeout_seconds,
            max_retries=len(configs) - 1,  # each node once, where a connection cannot be made or breaks
            retry_on_status=(),
            retry_on_timeout=False,
        )

    def call(
        self, method: str, target: str, body: bytes | None = None, *, seconds: float | None = None
    ) -> Reply | NoReply:
        """One exchange through the client's node, without its transport.

        The transport would retry four times by default, copy the body twice, and raise if a reply is not JSON. Only
        what cannot be read is not a Reply.
        """
        headers = HttpHeaders({"accept": _JSON})
        if body is not None:
            headers["content-type"] = _NDJSON if target.partition("?")[0].endswith("/_bulk") else _JSON
        if authorization := self.credentials.header():
            headers["authorization"] = authorization
        try:
            meta, raw = self.node.perform_request(method, target, body, headers, seconds or self.timeout_seconds)
        except Exception as error:
            return _no_reply(error)
        return Reply(meta.status, meta.headers, raw)

    def check_nodes(self) -> Iterator[Finding]:
        """Where there are several: each of them asked, for people."""
        if isinstance(self.node, Nodes):
            yield from self.node.check()

    def close(self) -> None:
        self.node.close()
        if self._client is not None:
            self._client.close()


def connect(settings: ElasticSettings, lanes: int = 2, announce: Announce = silent) -> Elastic:
    """Builds the nodes; opens no connection. One connection more than lanes, for probes and the check at start."""
    credentials = Credentials(settings)
    configs = {url: _config(settings, url, lanes) for url in settings.urls}
    if len(configs) == 1:
        return Elastic(DeadlineNode(configs[settings.urls[0]]), credentials, settings.timeout_seconds)
    several = {url: DeadlineNode(config, CONNECT_SECONDS) for url, config in configs.items()}
    # Not all workers of a machine begin at the same node.
    nodes = Nodes(several, credentials.header, announce, first=secrets.randbelow(len(several)))
    return Elastic(nodes, credentials, settings.timeout_seconds)


def _config(settings: ElasticSettings, url: str, lanes: int) -> NodeConfig:
    return url_to_node_config(url, use_default_ports_for_scheme=True).replace(
        ca_certs=str(settings.ca_certs) if settings.ca_certs else None,
        connections_per_node=lanes + 1,
        headers=HttpHeaders({"user-agent": create_user_agent("outbox-projector", __version__)}),
        request_timeout=settings.timeout_seconds,
    )


# OpenSSL's term for what is not trusted, and urllib3's two for a certificate of another name or of none.
_CERTIFICATE_TERMS: Final = ("CERTIFICATE", "HOSTNAME", "SUBJECTALTNAME")


def _no_reply(error: Exception) -> NoReply:
    match error:
        case OtherCluster():
            return NoReply(whole(Reason.ES_CONFIG, error.message), sent=False)
        case NotConnected():
            return NoReply(whole(Reason.CONNECT, error.message), sent=False)
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


def dumps(value: object) -> bytes:
    return orjson.dumps(value)
