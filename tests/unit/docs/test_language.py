"""Words that readers stumbled over stay out of what people read. RETIRED has each with a better one; see the glossary.

Scopes: pages; the program (messages, help, docstrings, comments, templates, SQL); configuration, dashboards, schemas
and shell scripts as a whole; benchmarks, labs and scripts with their texts; docstrings, comments and names of tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_TIMES = (
    "second|minute|hour|day|batch|event|process|lane|row|transaction|fingerprint|target|type|document|step|claim|client|"
    "example|layer|run|test|pass"
)
# What may stand between a number and an "a" that does not mean "per": "one of a kind", "two as a trial".
_JOINED = (
    "of|in|is|are|at|as|with|without|for|by|from|on|under|to|and|or|than|that|needs|takes|was|were|within|half|if|not|"
    "has|over|above|below|beside|during|after|before|inside|per|makes|holds|into|but|then|when|such|against|ended|gives"
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
    rf"(seconds|time limit) an? ({_TIMES})\b": "per",
    rf"an? (second|minute|hour) an? ({_TIMES})\b": "per",
    rf"(one|two|three|ten|fifty|(?<![-.\d])\d[\d,.]*(?<![.,])) (?!(?:{_JOINED})\b)\w+ an? \w+": "per",
    r"a (token|line|row|limit|heartbeat|fresh \w+) an? \w+": "per",
    r"(one|ten|fifty|hundred|thousand) an? (second|minute|hour)\b": "per",
    rf"(us|bytes|MB|seconds) of [\w']+( \w+)? an? ({_TIMES})\b": "per",
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
    r"(stands?|stood) still\b": "has stopped, is paused",
    r"to be had\b": "available",
    r"tonight|last night|the night's|that night|the night to": "(leave out: no diary)",
    r"(slow|fast) (hour|half minute)": "(leave out: no diary)",
    r"given up\b": "failed; dropped, ended",
    r"land(s|ed)\b|(must|may|can|to|would|will) land\b": "arrive, be settled",
    r"dear (look|query)": "expensive query",
    r"founding|the contract's|semantics, section|\bthis issue\b|\bIssue \d|(?<![\w.,])00[0-4](?![\w,]|\.\d)": (
        "(name the thing: readers do not have that paper)"
    ),
}
_EACH = "|".join(rf"(?P<r{i}>{word})" for i, word in enumerate(RETIRED))
FOUND = re.compile(rf"\b(?<!\w)(?:{_EACH})", re.IGNORECASE)
BETTER = [*RETIRED.values()]

FOLDERS = ("bench", "deploy", "docs", "examples", "grafana", "labs", "scripts", "sql")
PAGES = [
    *ROOT.glob("*.md"),
    *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md") if page.parent.name != "reports"),
]
# What runs have recorded, in the words of the program that they ran: the next record has today's.
MADE = re.compile(r"(?ms)<!-- (figures|nemesis)\b.*?<!-- (end of |/)[\w-]+ -->|^\| \[`\w+`\]\S+ \| PASS \|[^\n]*$")
# Commands, their output, names.
NAMED = re.compile(r"`[^`\n]*`")
CODE = re.compile(rf"^( *)```.*?^\1```$|{NAMED.pattern}|\]\([^)]*\)", re.DOTALL | re.MULTILINE)


def findings(text: str) -> list[str]:
    """Each retired word of the text, with what stands around it and a better one."""
    return [
        f"...{text[max(0, m.start() - 30) : m.end() + 20]!r}: better {BETTER[int(m.lastgroup[1:])]!r}"
        for m in FOUND.finditer(text)
        if m.lastgroup
    ]


def prose(page: Path) -> str:
    return CODE.sub(" ", MADE.sub(" ", page.read_text(encoding="utf-8")))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", sorted(PAGES), ids=name)
def test_a_page_is_in_plain_words(page: Path) -> None:
    assert findings(prose(page)) == []


DOCSTRING = re.compile(r'^ *"""(.*?)"""', re.DOTALL | re.MULTILINE)


def said(path: Path) -> str:
    """What a file says to people: of Python the comments and texts (of tests docstrings alone), of SQL the comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        text = "\n".join(re.findall(r"--(.*)$", text, re.MULTILINE))
    if path.suffix == ".py":
        text = "\n".join((*re.findall(r"(?:^|\s)# (.*)$", text, re.MULTILINE), *texts(path, text)))
    return NAMED.sub(" ", text)


def texts(path: Path, code: str) -> Iterator[str]:
    # The texts of the nemesis and of the seeded bugs are written into docs/reliability.md; a word alone is a field.
    written = name(path).startswith(("tests/nemesis/", "tests/seeded/"))
    if name(path).startswith("tests/") and not written:
        yield from DOCSTRING.findall(code)  # parsing all tests would take seconds
        return
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (" " in node.value or not written):
            yield node.value


# What else people read; a file without a suffix is a shell script.
KINDS = ("", ".py", ".sql", ".sh", ".html", ".json", ".yml", ".yaml", ".toml", ".conf", ".service", ".timer")
# Others' code; what was measured; numbered migrations, which never change after their release.
LEFT_OUT = re.compile(r"/vendor/|^docs/performance/|^sql/\d{4}_")
PROGRAMS = [
    *(ROOT / name for name in ("pyproject.toml", "mkdocs.yml", "docker-compose.infra.yml", "Dockerfile", ".ci/run")),
    ROOT / "docker-compose.kafka.yml",
    *(ROOT / name for name in (".pre-commit-config.yaml", "requirements/compile")),
    *(
        file
        for folder in (*FOLDERS, ".github", "outbox")
        for file in (ROOT / folder).rglob("*")
        if (file.suffix in KINDS or ".example" in file.name) and file.is_file() and not LEFT_OUT.search(name(file))
    ),
    *(file for file in (ROOT / "tests").rglob("*.py") if file != Path(__file__)),  # this one has the words themselves
]


def test_programs_are_in_plain_words() -> None:
    found = [f"{name(file)} {line}" for file in PROGRAMS for line in findings(said(file))]
    assert found == []


def test_names_of_tests_are_in_plain_words() -> None:
    named = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
    files = [*(ROOT / "tests").rglob("*.py")]
    names = [m[1] for file in files for m in named.finditer(file.read_text("utf-8"))]
    assert [each for each in (*names, *(file.stem for file in files)) if findings(spaced(each))] == []


def spaced(test: str) -> str:
    return re.sub(r"(?<=\d)_(?=\d)", ",", test).replace("_", " ")
