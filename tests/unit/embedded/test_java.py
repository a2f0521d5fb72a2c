"""Which Java runs which search server."""

from pathlib import Path

import pytest

from outbox.embedded.errors import DistributionUnusable
from outbox.embedded.java import Java
from outbox.embedded.products import ELASTICSEARCH, release_of

ELASTICSEARCH_8, ELASTICSEARCH_9 = ELASTICSEARCH.java_needs[8], ELASTICSEARCH.java_needs[9]


def whole(home: Path, modules: str = "java.base jdk.jdi", image: bytes = b"sun/text/resources/ext/thai_dict") -> Path:
    """A Java that lists these modules and whose image holds these names."""
    for folder in ("bin", "lib"):
        (home / folder).mkdir()
    (home / "lib" / "modules").write_bytes(image)
    listed = "".join(f"echo {name}@21\n" for name in modules.split())
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{listed}")
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("release", "java", "fits"),
    [
        ("8", 11, False),  # too old
        ("8", 17, True),  # Debian's
        ("8", 21, True),  # the one that is fetched
        ("8", 25, False),  # no security manager any more
        ("9", 17, False),
        ("9", 25, True),
        ("8", 0, False),  # printed no version
        ("opensearch-2", 17, True),
        ("opensearch-2", 24, False),  # no security manager any more
        ("opensearch-3", 17, False),
        ("opensearch-3", 25, True),
    ],
)
def test_a_java_fits_by_its_major_version(tmp_path: Path, release: str, java: int, fits: bool) -> None:
    assert (release_of(release).java_needs.why_not(Java(whole(tmp_path), java)) == "") is fits


@pytest.mark.parametrize("wanted", ["8.15.0", "2", "opensearch-1", "opensearch-8", "solr", ""])
def test_a_release_that_cannot_be_fetched_is_refused_with_those_that_can(wanted: str) -> None:
    with pytest.raises(DistributionUnusable, match=r"8\.14\.1, elasticsearch-9\.4\.3, opensearch-2\.19\.6"):
        release_of(wanted)
