"""Which product answers at ELASTIC_URL, and everything in which Elasticsearch and OpenSearch differ for us. Pure.

What their refusals mean is in `reply_rules`, one table for both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from outbox.policy.classify import Split, classify_request, whole
from outbox.policy.outcome import Failure, Reason


class Product(StrEnum):
    ELASTICSEARCH = "elasticsearch"
    OPENSEARCH = "opensearch"

    @property
    def shown(self) -> str:
        return "OpenSearch" if self is Product.OPENSEARCH else "Elasticsearch"


NEEDED: Final = "Elasticsearch 8 or 9, or OpenSearch 2.4 or 3"
# No quotes and no brackets in these: redaction would take what they hold for a value.
WRONG_PRODUCT: Final = (
    "the server at ELASTIC_URL is neither Elasticsearch nor OpenSearch (no X-Elastic-Product header, and GET / names no"
    f" product); nothing was written. Set ELASTIC_URL to {NEEDED}"
)
STRIPPED: Final = (
    "the server at ELASTIC_URL says that it is Elasticsearch, and something before it removes the X-Elastic-Product"
    " header; nothing was written. Configure the proxy to pass that header, or set ELASTIC_PRODUCT=elasticsearch"
)
SERVERLESS: Final = (
    "the server at ELASTIC_URL is Amazon OpenSearch Serverless, which lacks what projection needs (GET /, points in"
    " time and more); nothing was written. Use a domain of Amazon OpenSearch Service, or a cluster of your own"
)
MAY_NOT_ASK: Final = (
    "403 at GET /: this user may not ask which product this is; nothing was written. Grant cluster:monitor/main, or set"
    " ELASTIC_PRODUCT=opensearch; for a domain of AWS check the credentials, ELASTIC_AWS_REGION and the clock"
)
NOT_ACCEPTED: Final = (
    "401 at GET /: the credentials are not accepted. Check ELASTIC_API_KEY, which OpenSearch knows from 3.7 on, or"
    " ELASTIC_USERNAME and ELASTIC_PASSWORD, or for a domain of AWS set ELASTIC_AWS_REGION"
)
_OPENSEARCH_TAGLINE: Final = "The OpenSearch Project"
_ELASTIC_TAGLINE: Final = "You Know, for Search"
_VERSION: Final = re.compile(r"OpenSearch/(\d[\w.-]*)")
_OLD: Final = {
    Product.ELASTICSEARCH: re.compile(r"[0-7]\."),
    Product.OPENSEARCH: re.compile(r"(1|2\.[0-3])\."),  # they have no points in time
}
# What a busy or broken server says: it tells nothing of the product, so the setting cannot decide either.
_LATER: Final = (408, 413, 429)


@dataclass(frozen=True, slots=True)
class Server:
    """What answers. No number: it did not say."""

    product: Product
    number: str = ""

    def __str__(self) -> str:
        return f"{self.product.shown} {self.number}".rstrip()

    @property
    def dialect(self) -> Dialect:
        return ELASTICSEARCH if self.product is Product.ELASTICSEARCH else OPENSEARCH


def by_header(headers: Mapping[str, str]) -> Server | None:
    """Elasticsearch names itself on every reply, OpenSearch from 3.0 on. None: this reply does not say."""
    if headers.get("x-elastic-product") == "Elasticsearch":
        return Server(Product.ELASTICSEARCH)
    told = headers.get("x-opensearch-version")
    if told is not None:
        found = _VERSION.match(told)
        return Server(Product.OPENSEARCH, found[1] if found else "")
    return None


def identify(status: int, headers: Mapping[str, str], body: object, setting: Product | None = None) -> Server | Failure:
    """The server, from its reply to `GET /`; `setting` is ELASTIC_PRODUCT. A failure names the remedy and is never a
    document's fault."""
    if str(headers.get("server", "")).startswith("aoss"):
        return whole(Reason.ES_CONFIG, SERVERLESS)
    if found := _found(headers, body):
        return _checked(found, setting)
    if status == 401:
        return whole(Reason.ES_AUTH, NOT_ACCEPTED)
    if status >= 500 or status in _LATER:
        verdict = classify_request(status, body, headers)
        return verdict.alone if isinstance(verdict, Split) else verdict
    if setting is not None:
        return Server(setting)
    if status == 403:
        return whole(Reason.ES_AUTH, MAY_NOT_ASK)
    if isinstance(body, Mapping) and body.get("tagline") == _ELASTIC_TAGLINE:
        return whole(Reason.ES_CONFIG, STRIPPED)
    return whole(Reason.ES_CONFIG, WRONG_PRODUCT)


def changed(before: Server, now: Server) -> Failure:
    """Another cluster, which may hold other documents: a person decides whether that is meant."""
    text = (
        f"{now} answers at ELASTIC_URL where {before.product.shown} answered before; nothing more is written. Correct"
        " ELASTIC_URL, or, if the move is meant, restart this process and run outbox verify"
    )
    return whole(Reason.ES_CONFIG, text)


def _found(headers: Mapping[str, str], body: object) -> Server | None:
    named = by_header(headers)
    page: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    about, tagline = page.get("version"), str(page.get("tagline"))
    number = str(about.get("number") or "") if isinstance(about, Mapping) else ""
    if named is not None:
        return named if named.number else Server(named.product, number)
    if isinstance(about, Mapping) and about.get("distribution") == "opensearch":
        return Server(Product.OPENSEARCH, number)
    # Compatibility mode: it passes for 7.10.2 and leaves the distribution out. Its own number is then unknown.
    if number == "7.10.2" and tagline.startswith(_OPENSEARCH_TAGLINE):
        return Server(Product.OPENSEARCH)
    # Before 7.14 it had no header that something could have removed.
    is_old = tagline == _ELASTIC_TAGLINE and _OLD[Product.ELASTICSEARCH].match(number)
    return Server(Product.ELASTICSEARCH, number) if is_old else None


def _checked(found: Server, setting: Product | None) -> Server | Failure:
    if setting is not None and found.product is not setting:
        text = f"ELASTIC_PRODUCT={setting}, and {found} answers at ELASTIC_URL; nothing was written. Correct either"
        return whole(Reason.ES_CONFIG, text)
    if _OLD[found.product].match(found.number):
        return whole(Reason.ES_CONFIG, f"{found} is too old; nothing was written. Use {NEEDED}")
    return found


# What differs

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one product is spoken to. Measured on Elasticsearch 8.14 and 9.4 and on OpenSearch 2.19 and 3.6."""

    json: str
    ndjson: str
    open_pit: str  # behind the index
    close_pit: str
    pit_id: str  # in the reply that opens one
    pit_list: bool  # several are closed at once
    # A sort by which a page continues behind the last one over all shards. Without it each shard is read by itself:
    # sorted by `_doc` over three shards, 2,943 of 3,000 documents came back. OpenSearch has `_shard_doc` from 3.3 on;
    # over an alias of two indexes 3.6 gave 2,970 of 3,000 by it.
    sorts_shards: bool
    forbids_auto_create: bool  # a template can forbid that a write creates the index
    asks_privileges: bool  # a key may ask what it may do
    no_write: str  # what a login that may not write lacks, by this product's names
    # Before each further try of a document that lost a new field to another request at the same moment. OpenSearch
    # refuses it before the shard knows the mapping that won: 12 of 20 were refused a second time, none a third time.
    new_field_waits: tuple[float, ...]
    # Settings that the server itself writes, and those that a rebuild must not copy.
    not_copied: tuple[str, ...]

    def pit_to_close(self, pit: str) -> dict[str, Any]:
        return {self.pit_id: [pit] if self.pit_list else pit}

    def template(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """An index template after which no write can create the index with a guessed mapping.

        OpenSearch cannot forbid it. There the index that a write creates is blocked and hidden, so it stays empty, and
        `is_auto_created` tells it from one that a person has blocked.
        """
        if self.forbids_auto_create:
            return {**body, "allow_auto_create": False}
        inner = body.get("template", {})
        return {**body, "template": {**inner, "settings": {**inner.get("settings", {}), **_BLOCKED}}}

    def for_create(self, settings: Settings) -> dict[str, Any]:
        """Settings of an index that is created on purpose: they undo what the template does to one that is not."""
        return dict(settings) if self.forbids_auto_create else {**dict.fromkeys(_BLOCKED, False), **settings}

    def is_auto_created(self, settings: Settings) -> bool:
        """Flat settings of an index that a write created against the template: as good as missing."""
        return not self.forbids_auto_create and all(str(settings.get(name)) == "true" for name in _BLOCKED)


_BLOCKED: Final[Settings] = {"index.blocks.write": True, "index.hidden": True}
_NOT_COPIED: Final = (
    "index.uuid",
    "index.creation_date",
    "index.provided_name",
    "index.version.",
    "index.gc_deletes",
    "index.blocks.",
    "index.resize.",
    "index.routing.allocation.initial_recovery.",
    "index.verified_before_close",
    "index.history.",
)

ELASTICSEARCH: Final = Dialect(
    json="application/vnd.elasticsearch+json; compatible-with=8",
    ndjson="application/vnd.elasticsearch+x-ndjson; compatible-with=8",
    open_pit="_pit?",
    close_pit="/_pit",
    pit_id="id",
    pit_list=False,
    sorts_shards=True,
    forbids_auto_create=True,
    asks_privileges=True,
    no_write="the key lacks the privileges index and delete",
    new_field_waits=(0.0,),
    not_copied=(*_NOT_COPIED, "index.lifecycle."),
)
OPENSEARCH: Final = Dialect(
    json="application/json",
    ndjson="application/x-ndjson",
    # By default a shard that is down is left out in silence.
    open_pit="_search/point_in_time?allow_partial_pit_creation=false&",
    close_pit="/_search/point_in_time",
    pit_id="pit_id",
    pit_list=True,
    sorts_shards=False,
    forbids_auto_create=False,
    asks_privileges=False,
    no_write="the role lacks indices:data/write/index or indices:data/write/delete, or the bulk of both",
    new_field_waits=(0.0, 0.05, 0.2),
    not_copied=(*_NOT_COPIED, "index.plugins.index_state_management.", "index.remote_store.", "index.hidden"),
)
