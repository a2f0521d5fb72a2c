"""docs/model/README.md names functions, tests and mutations that exist, and leaves out no action of a model."""

from __future__ import annotations

import ast
import re

import pytest

from tests.model.test_tla import DEEPLY_REFUTED, REFUTED, rows
from tests.model.tlc import MODELS

ROOT = MODELS.parents[1]
NAMES = sorted(path.stem for path in MODELS.glob("*.cfg"))
TABLE = rows("| model | action | function | test |")
DEFINED = re.compile(r"^(\w+)(?:\([\w, ]+\))? ==(.*?)(?=^\w+(?:\([\w, ]+\))? ==|^[-=]{4}|\Z)", re.MULTILINE | re.DOTALL)


def text(model: str) -> str:
    return re.sub(r"\(\*.*?\*\)", "", (MODELS / f"{model}.tla").read_text(encoding="utf-8"), flags=re.DOTALL)


def actions(model: str) -> set[str]:
    """What `Next` and `Step` consist of; without what only a mutation does."""
    defined = dict(DEFINED.findall(text(model)))
    parts = set(re.findall(r"\b[A-Z]\w+", defined["Next"] + defined["Step"])) & defined.keys()
    return {name for name in parts if "UNCHANGED" in defined[name]} - {"DrawEarly"}


@pytest.mark.parametrize("model", NAMES)
def test_every_action_of_a_model_is_in_the_table(model: str) -> None:
    assert len(actions(model)) > 8
    assert {action for name, action, *_ in TABLE if name == model} == actions(model)


@pytest.mark.parametrize("model", NAMES)
def test_every_mutation_of_a_model_is_run(model: str) -> None:
    bugs = set(
        re.findall(
            r'"([^"]+)"', " ".join(re.findall(r'Bug (?:#|=|\\notin) (\{[^}]*\}|"[^"]*")', text(model) + text("Core")))
        )
    )
    run = {mutation for name, mutation, *_ in (*REFUTED, *DEEPLY_REFUTED)}
    assert bugs - {"no check at all"} <= run  # both of its halves are run


def test_every_function_of_the_table_exists() -> None:
    wanted = {function.strip("`") for _, _, function, _ in TABLE} - {"-"}
    missing = [name for name in wanted if not defines(*name.split("::"))]
    assert len(wanted) > 30
    assert missing == []


def defines(file: str, name: str) -> bool:
    body: list[ast.stmt] = ast.parse((ROOT / "outbox" / file).read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part]
        if not found:
            return False
        body = found[0].body
    return True


def test_every_test_of_the_table_exists() -> None:
    wanted = {test.strip("`") for *_, test in TABLE}
    files = {
        file: (ROOT / "tests" / file).read_text(encoding="utf-8") for file in {test.split("::")[0] for test in wanted}
    }
    missing = [test for test in wanted if f"def test_{test.split('::')[1]}(" not in files[test.split("::")[0]]]
    assert missing == []
