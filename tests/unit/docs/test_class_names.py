"""One class per name: whoever reads a name, or searches for it, finds one class."""

import re
from collections import Counter
from functools import cache

from tests.fixtures.processes import ROOT

CODE = ("outbox", "labs", "bench", "scripts")
# By their lines and not as parsed code, which would take seconds.
CLASS = re.compile(r"^ *class (\w+)[(:\[]", re.MULTILINE)


@cache
def classes(room: str) -> list[str]:
    return [name for file in (ROOT / room).rglob("*.py") for name in CLASS.findall(file.read_text(encoding="utf-8"))]


def test_no_class_name_occurs_twice_in_the_code() -> None:
    names = Counter(name for room in CODE for name in classes(room))
    assert len(names) > 300, "the classes are found"
    assert [name for name, n in names.items() if n > 1] == []


def test_no_class_of_the_tests_is_named_like_one_of_the_package() -> None:
    assert set(classes("tests")) & set(classes("outbox")) == set()
