"""Describes the search servers that can be embedded: their names, releases and Java. It starts and fetches none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outbox.embedded.errors import DistributionUnusable
from outbox.embedded.java import JavaNeeds
from outbox.embedded.pins import ELASTICSEARCH_8, ELASTICSEARCH_9, OPENSEARCH_2, OPENSEARCH_3, Download


@dataclass(frozen=True)
class EmbeddedProduct:
    """`name` is in the names of its jar, its configuration file and its system properties."""

    name: str
    title: str
    java_needs: Mapping[int, JavaNeeds] = field(hash=False)  # by major version


# Tested: 8.14.1 on 17 and 21, 9.4.3 on 25. Elasticsearch 9 needs jdk.jdi, which runtimes without development tools
# lack.
ELASTICSEARCH = EmbeddedProduct(
    "elasticsearch", "Elasticsearch", {8: JavaNeeds(17, 22), 9: JavaNeeds(21, 99, "jdk.jdi")}
)
# Tested: 2.19.6 on 17 and 21, 3.6.0 on 21 and 25. OpenSearch 2 needs the security manager, which Java 24 removed.
OPENSEARCH = EmbeddedProduct("opensearch", "OpenSearch", {2: JavaNeeds(11, 23), 3: JavaNeeds(21, 99)})
PRODUCTS = (ELASTICSEARCH, OPENSEARCH)


@dataclass(frozen=True)
class OfVersion:
    """What follows from a product and its version, of a server that can be fetched and of one that is unpacked."""

    product: EmbeddedProduct
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def java_needs(self) -> JavaNeeds:
        return self.product.java_needs[self.major]


@dataclass(frozen=True)
class Release(OfVersion):
    archive: Download

    @property
    def name(self) -> str:
        return self.archive.name


RELEASES = {
    "8": Release(ELASTICSEARCH, "8.14.1", ELASTICSEARCH_8),
    "9": Release(ELASTICSEARCH, "9.4.3", ELASTICSEARCH_9),
    "opensearch-2": Release(OPENSEARCH, "2.19.6", OPENSEARCH_2),
    "opensearch-3": Release(OPENSEARCH, "3.6.0", OPENSEARCH_3),
}
_USUAL = {"elasticsearch": "8", "opensearch": "opensearch-3"}


def release_of(wanted: str) -> Release:
    """By product, or with a major or full version: `opensearch`, `opensearch-2`, `opensearch-2.19.6`; a version alone
    is one of Elasticsearch."""
    usual = _USUAL.get(wanted, wanted).removeprefix("elasticsearch-")
    for key, release in RELEASES.items():
        if usual in (key, release.name, release.name.removeprefix("elasticsearch-")):
            return release
    known = ", ".join(release.name for release in RELEASES.values())
    raise DistributionUnusable(f"there is no release {wanted!r} to download; available are {known}")
