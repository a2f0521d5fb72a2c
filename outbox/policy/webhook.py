"""What a webhook says, how it is signed, when it is tried again and where it may go. Sends nothing."""

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from outbox.policy.replay import ReplayBatch

GONE: Final = 410  # this receiver wants no more
TOLERANCE_SECONDS: Final = 300  # how old a signed message may be before a verifier refuses it
LATER_SECONDS: Final = (60.0, 300.0, 1800.0, 7200.0, 43200.0)
_SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix that Standard Webhooks gives its secrets
_LONGEST_URL: Final = 2_000


class HookType(StrEnum):
    REPLAY_SETTLED = "replay.settled"
    EVENTS_FAILED = "events.failed"
    SINK_PAUSED = "sink.paused"
    SINK_RESUMED = "sink.resumed"
    TEST = "webhook.test"


class Notice(NamedTuple):
    """One message on its way to one address. The key makes it unique over all processes."""

    type: HookType
    url: str
    body: Mapping[str, Any]
    dedupe_key: str | None = None
    replay_id: UUID | None = None


class WebhookDelivery(NamedTuple):
    """One try that is due. `refused`: its receiver has said 410 before."""

    id: UUID
    type: str
    url: str
    body: bytes
    attempts: int  # this one included
    refused: bool


class Posted(NamedTuple):
    """The receiver's status, or why there is none. `refused`: sending to this address is not allowed."""

    status: int | None
    error: str = ""
    refused: bool = False
    retry_after_seconds: float = 0.0  # as the receiver requested


def message(kind: HookType, at: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": str(kind), "timestamp": at.isoformat(), "data": dict(data)}


def replay_notices(batch: ReplayBatch, configured: str | None) -> list[Notice]:
    """Who hears that a replay is over: the installation's address and the replay's own, once each."""
    names = (
        "id", "status", "reason", "requested_by", "requested_reason", "source", "filter", "total", "replayed",
        "skipped", "done", "failed_again", "still_open", "discarded", "created_at", "dispatched_at", "settled_at",
    )  # fmt: skip
    data = {name: getattr(batch, name) for name in names}
    body = message(HookType.REPLAY_SETTLED, batch.settled_at or batch.updated_at, data)
    urls = dict.fromkeys(url for url in (configured, batch.webhook_url) if url)
    return [
        Notice(HookType.REPLAY_SETTLED, url, body, f"replay.settled:{batch.id}:{url_key(url)}", batch.id)
        for url in urls
    ]


def url_key(url: str) -> str:
    """Names an address without showing its path, which is often a secret."""
    return f"{urlsplit(url).hostname}#{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def retry_delay_seconds(attempts: int, quick: int) -> float | None:
    """After so many attempts: 0.5, 1.5, 3.5 s for the quick ones, then 1, 5, 30 min, 2, 12 h; None = it failed."""
    if attempts <= quick:
        return float(2**attempts - 1) / 2 if attempts < 3 else 3.5 * 2 ** (attempts - 3)
    later = attempts - quick - 1
    return LATER_SECONDS[later] if later < len(LATER_SECONDS) else None


def key_of(secret: str) -> bytes:
    """The bytes behind a secret: base64 after `whsec_`, as the standard has it; any other text is taken as it is.
    Raises ValueError where there are none: anyone could sign with an empty key."""
    key = secret.encode()
    if secret.startswith(_SECRET_PREFIX):
        with suppress(binascii.Error):
            key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    if not key.strip():
        raise ValueError("holds no key: anyone could sign with it")
    return key


def sign(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """`v1,` and the HMAC-SHA256 over `id.timestamp.body`."""
    signed = f"{id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()


def headers(secret: str | None, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The Standard Webhooks headers; without a secret there is no signature."""
    signature = {"webhook-signature": sign(secret, id, timestamp, body)} if secret else {}
    return {"webhook-id": id, "webhook-timestamp": str(timestamp), "content-type": "application/json", **signature}


def verify(secret: str, given: Mapping[str, str], body: bytes, now: float) -> str | None:
    """None when the message is ours and fresh, else why not. The names of the headers may be in any case."""
    found = {name.lower(): value for name, value in given.items()}
    id, timestamp, signatures = (found.get(f"webhook-{part}", "") for part in ("id", "timestamp", "signature"))
    if not (id and timestamp and signatures):
        return "a header is missing: webhook-id, webhook-timestamp and webhook-signature are needed"
    if not (timestamp.isascii() and timestamp.isdigit()):
        return "webhook-timestamp is not a number of seconds"
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        return f"webhook-timestamp is more than {TOLERANCE_SECONDS} s away"
    wanted = sign(secret, id, int(timestamp), body).encode()
    # Every one is compared, in constant time; several stand there while a secret is changed.
    fits = [hmac.compare_digest(wanted, one.encode()) for one in signatures.split(" ")]
    return None if any(fits) else "no signature fits: another secret, or the body was changed"


def bad_url(url: str, allowed_hosts: Collection[str]) -> str | None:
    """Why a webhook must not go there, judged by the address's text alone; None when it may be tried."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "it is not an address that can be read"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it must be https://host/path"
    if len(url) > _LONGEST_URL or any(ord(c) <= 32 or ord(c) > 126 for c in url):
        return f"it must be at most {_LONGEST_URL} printable ASCII characters"
    if parts.username is not None or parts.password is not None:
        return "it must not hold a user name or password"
    if parts.scheme == "http" and not is_allowed(parts.hostname, allowed_hosts):
        return "plain http is only for hosts in OUTBOX_WEBHOOK_ALLOWED_HOSTS"
    return None


def is_allowed(host: str, allowed_hosts: Collection[str]) -> bool:
    return host.lower().rstrip(".") in {each.lower().rstrip(".") for each in allowed_hosts}


def is_public(address: str) -> bool:
    """Whether an address lies outside every private, loopback, link-local and reserved range; IPv4 inside IPv6 too."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.is_site_local:  # RFC 3879 took it back, Python calls it global, and networks may still route it
            return False
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if ip in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    elif ip in _PROTOCOLS:
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


_PROTOCOLS: Final = ipaddress.ip_network("192.0.0.0/24")  # some of it counts as global, by Python's version
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
