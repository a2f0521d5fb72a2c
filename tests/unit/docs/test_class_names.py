"""One class per name: whoever reads a name, or searches for it, finds one class."""

import ast
import re
from collections import Counter
from functools import cache

from tests.fixtures.processes import ROOT

CODE = ("outbox", "labs", "bench", "scripts")
CLASS = re.compile(r"\bclass\s+\w")


@cache
def classes(room: str) -> list[str]:
    """Only a file with the word is parsed, which takes most of the time."""
    files = (file.read_text(encoding="utf-8") for file in sorted((ROOT / room).rglob("*.py")))
    trees = (ast.parse(text) for text in files if CLASS.search(text))
    return [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_no_class_name_occurs_twice_in_the_code() -> None:
    names = Counter(name for room in CODE for name in classes(room))
    assert len(names) > 300, "the classes are found"
    assert [name for name, n in names.items() if n > 1] == []


def test_no_class_of_the_tests_is_named_like_one_of_the_package() -> None:
    assert set(classes("tests")) & set(classes("outbox")) == set()
