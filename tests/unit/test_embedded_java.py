"""Which Java runs which Elasticsearch."""

from pathlib import Path

import pytest

from outbox.embedded.distribution import JAVA_NEEDS, release_of
from outbox.embedded.errors import DistributionUnusable
from outbox.embedded.java import Java


@pytest.mark.parametrize(
    ("elasticsearch", "java", "fits"),
    [
        (8, 11, False),  # too old
        (8, 17, True),  # Debian's
        (8, 21, True),  # the wheel's
        (8, 22, True),
        (8, 25, False),  # no security manager any more
        (9, 17, False),
        (9, 21, True),
        (9, 25, True),
        (8, 0, False),  # did not say its version
    ],
)
def test_a_java_fits_by_its_major_version(elasticsearch: int, java: int, fits: bool) -> None:
    assert JAVA_NEEDS[elasticsearch].fit(Java(Path("/nowhere"), java)) is fits


@pytest.mark.parametrize(("wanted", "version"), [("8", "8.14.1"), ("9", "9.4.3"), ("8.14.1", "8.14.1")])
def test_a_release_is_named_by_its_major_version_or_in_full(wanted: str, version: str) -> None:
    assert release_of(wanted).version == version


def test_a_release_that_cannot_be_fetched_is_refused_with_those_that_can() -> None:
    with pytest.raises(DistributionUnusable, match=r"8\.14\.1, 9\.4\.3"):
        release_of("8.15.0")
