"""Words that readers stumbled over stay out of what people read. RETIRED has each with a better one; see the glossary.

Three scopes: pages, the program (messages, help, docstrings, comments, templates) and the names of tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_TIMES = (
    "second|minute|hour|day|batch|event|process|lane|row|transaction|fingerprint|target|type|document|step|claim|client"
)
_COUNTED = r"\d[\d,.]*|events|rows|requests|documents|changes|commits|inserts|items|messages|bytes|us|ms|MB|CPU|often"
# Word or phrase, as a regular expression -> what to say instead.
RETIRED = {
    r"mend(s|ed|ing)?\b": "fix",
    r"reckon\w*": "estimate, count on",
    r"look(s|ed|ing)?\b(?![ -](like|up\b|ahead|behind))": "check, query, read or search",
    r"told\b": "reported, logged",
    r"(last|bad|good|own|items?'?s?|people's|Elasticsearch's|server's|database's) word\b": "verdict, reply",
    r"operators' words\b": "controls",
    r"doors?\b": "route, endpoint or entry point",
    r"roads?\b": "connection, transition or way",
    rf"({_COUNTED}|(one|a) (row|message|statement|claim|index|query|page|file|line)) an? ({_TIMES})\b": "per",
    rf"an? (second|minute|hour) an? ({_TIMES})\b": "per",
    r"by lot\b": "a random sample",
    r"cannot be meant\b": "is invalid",
    r"to blame\b": "at fault",
    r"in hand\b": "held, in flight",
    r"heard of\b": "seen",
    r"who may\b": "roles, rights",
    r"strangers?\b": "another account, unauthenticated",
    r"(is|are|was|were|be|Elasticsearch|PostgreSQL|database) away\b": "down, unreachable",
    r"leaves? with \d": "exits with",
    r"go(es)? on by (itself|themselves)\b": "resumes, continues",
    r"stands? still\b": "has stopped, is paused",
    r"to be had\b": "available",
    r"tonight|last night|the night's|that night|the night to": "(leave out: no diary)",
    r"founding|the contract's|\(00[0-4]\)|00[0-4]'s|\bof 00[0-4]\b": "(name the thing: readers do not have that paper)",
}
FOUND = re.compile("|".join(rf"(?P<r{i}>(?<!\w)(?:{word}))" for i, word in enumerate(RETIRED)), re.IGNORECASE)
BETTER = [*RETIRED.values()]

FOLDERS = ("bench", "deploy", "docs", "grafana", "labs", "scripts", "sql")
PAGES = [
    *ROOT.glob("*.md"),
    *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md") if page.parent.name != "reports"),
]
# Records of runs, made by programs.
RECORDS = {"labs/RECORD.md", "labs/CONCLUSIONS.md"}
# Parts of pages that are written by a program, or compared with one: they follow when it does.
MADE = re.compile(r"<!-- (figures|nemesis|table|compat)\b.*?<!-- (end of |/)\w+ -->", re.DOTALL)
COMPARED = {
    "docs/reliability.md": r"^\| M\d+ \|.*$",  # tests/seeded/bugs.py
    "grafana/README.md": r"^\| .*$",  # the titles of the panels
}
# Commands, their output, names.
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)


def findings(text: str) -> list[str]:
    """Each retired word of the text, with what stands around it and a better one."""
    return [
        f"...{text[max(0, m.start() - 30) : m.end() + 20]!r}: better {BETTER[int(m.lastgroup[1:])]!r}"
        for m in FOUND.finditer(text)
        if m.lastgroup
    ]


def prose(page: Path) -> str:
    text = CODE.sub(" ", MADE.sub(" ", page.read_text(encoding="utf-8")))
    return re.sub(COMPARED.get(name(page), r"(?!)"), "", text, flags=re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", sorted(page for page in PAGES if name(page) not in RECORDS), ids=name)
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert findings(prose(page)) == []


def said(path: Path) -> Iterator[str]:
    """What a file of the program says to people: its texts, docstrings and comments; a template as a whole."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        yield text
        return
    yield from (m[1] for m in re.finditer(r"(?:^|\s)# (.*)$", text, re.MULTILINE))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_the_program_is_in_plain_words() -> None:
    files = [*(ROOT / "outbox").rglob("*.py"), *(ROOT / "outbox").rglob("*.html")]
    found = [f"{name(file)} {line}" for file in files for text in said(file) for line in findings(text)]
    assert found == []


def test_names_of_tests_are_in_plain_words() -> None:
    named = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
    names = [m[1] for file in (ROOT / "tests").rglob("test_*.py") for m in named.finditer(file.read_text("utf-8"))]
    assert [each for each in names if findings(each.replace("_", " "))] == []
