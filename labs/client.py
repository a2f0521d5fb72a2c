"""Owns the plain client of labs, tests and benchmarks: Elasticsearch's own, which here may read OpenSearch too; and
which server they start, and which one answers.

That client refuses a server that does not call itself Elasticsearch, and sends content types that OpenSearch does not
know. Calls that only one product has are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from elastic_transport import HttpHeaders, Urllib3HttpNode
from elastic_transport._node import NodeApiResponse
from elasticsearch import Elasticsearch

from outbox.embedded.products import release_of
from outbox.policy.product import Product, Server

# What `--product` of labs, nemesis and benchmarks takes. Of OpenSearch the one that starts in half the time.
PRODUCTS = "elasticsearch, opensearch (2.19), or a release such as opensearch-3"
_USUAL = {"opensearch": "opensearch-2"}
_PRODUCT = "x-elastic-product"
_ONLY_ELASTICSEARCH = re.compile(r"application/vnd\.elasticsearch\+([\w-]+)\s*;\s*compatible-with=\d+")


class EitherProduct(Urllib3HttpNode):
    """Asks the server once which product it is, and translates if it is another than Elasticsearch."""

    _other: bool | None = None

    def perform_request(self, method: str, target: str, **more: Any) -> NodeApiResponse:  # type: ignore[override]
        if self._other is None:
            told = super().perform_request("GET", "/", **{**more, "body": None})
            self._other = _PRODUCT not in told.meta.headers
        if not self._other:
            return super().perform_request(method, target, **more)
        given = more.pop("headers", None) or {}
        headers = HttpHeaders({name: _ONLY_ELASTICSEARCH.sub(r"application/\1", text) for name, text in given.items()})
        meta, body = super().perform_request(method, target, headers=headers, **more)
        return NodeApiResponse(replace(meta, headers=HttpHeaders({**meta.headers, _PRODUCT: "Elasticsearch"})), body)


def connect(url: str | Sequence[str], **options: Any) -> Elasticsearch:
    """A client of either product; options as for `Elasticsearch`."""
    return Elasticsearch(url, node_class=EitherProduct, **options)


def release(product: str) -> str:
    """The release to start, for a product or a release by its name. Raises DistributionUnusable for another one."""
    wanted = _USUAL.get(product, product)
    release_of(wanted)
    return wanted


def server_of(client: Elasticsearch) -> Server:
    """Which product and version answers."""
    version = client.info()["version"]
    product = Product.OPENSEARCH if version.get("distribution") == "opensearch" else Product.ELASTICSEARCH
    return Server(product, str(version["number"]))


def server_in(record: Mapping[str, Any]) -> Server:
    """The same from a record, which has the version under the product's name."""
    product = next((product for product in Product if product in record), Product.ELASTICSEARCH)
    return Server(product, str(record.get(product, "")))
