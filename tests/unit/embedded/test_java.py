"""Which Java runs which Elasticsearch."""

from pathlib import Path

import pytest

from outbox.embedded.errors import DistributionUnusable
from outbox.embedded.find_server import JAVA_NEEDS, release_of
from outbox.embedded.java import Java


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
    ("elasticsearch", "java", "fits"),
    [
        (8, 11, False),  # too old
        (8, 17, True),  # Debian's
        (8, 21, True),  # the one that is fetched
        (8, 22, True),
        (8, 25, False),  # no security manager any more
        (9, 17, False),
        (9, 21, True),
        (9, 25, True),
        (8, 0, False),  # printed no version
    ],
)
def test_a_java_fits_by_its_major_version(tmp_path: Path, elasticsearch: int, java: int, fits: bool) -> None:
    assert (JAVA_NEEDS[elasticsearch].why_not(Java(whole(tmp_path), java)) == "") is fits


def test_modules_are_those_it_lists_not_those_of_its_release_file(tmp_path: Path) -> None:
    """Temurin's runtime keeps the file of the JDK that it was made from, which names jdk.jdi."""
    home = whole(tmp_path, modules="java.base")
    (home / "release").write_text('MODULES="java.base jdk.jdi"')
    assert JAVA_NEEDS[9].why_not(Java(home, 21)) == "is Java 21 without the module jdk.jdi"
    assert JAVA_NEEDS[8].why_not(Java(home, 21)) == ""


def test_a_java_that_cannot_divide_thai_words_does_not_fit(tmp_path: Path) -> None:
    home = whole(tmp_path, image=b"sun/text/resources/ext/BreakIteratorRules_de")
    assert JAVA_NEEDS[8].why_not(Java(home, 21)) == "is Java 21 without all locales"


@pytest.mark.parametrize(("wanted", "version"), [("8", "8.14.1"), ("9", "9.4.3"), ("8.14.1", "8.14.1")])
def test_a_release_is_named_by_its_major_version_or_in_full(wanted: str, version: str) -> None:
    assert release_of(wanted).version == version


def test_a_release_that_cannot_be_fetched_is_refused_with_those_that_can() -> None:
    with pytest.raises(DistributionUnusable, match=r"8\.14\.1, 9\.4\.3"):
        release_of("8.15.0")
