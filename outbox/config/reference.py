"""Renders docs/configuration.md from the settings; it does not write any file."""

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise

from outbox.config.declaration import Section, Variable
from outbox.config.settings import VARIABLES, Settings

_HEAD = """\
# Configuration

<!-- Made by scripts/docs from outbox/config; change the text there. -->

Flags override environment variables, which override defaults. An empty value counts as unset. A secret may also come
from a file: set `NAME_FILE` to its path instead of `NAME`. All problems are reported together, with exit code 78.

A variable that begins with `OUTBOX_` or `ELASTIC_` and is not listed here is an error, with a suggestion: a typo must
not silently mean the default. `OUTBOX_TEST_*`, `ELASTIC_APM_*` and the variables that Kubernetes injects for services
are ignored.

`outbox config check` reports whether the configuration is valid. `outbox config print` shows every value and where it
came from, without secrets. Seconds and days may have decimals.
"""
_TABLE = "| variable | default | accepts | effect and tradeoff |\n|---|---|---|---|"
_GENERAL = "What is projected, and under which names."


def render_reference() -> str:
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for section in dict.fromkeys(variable.section for variable in VARIABLES.values()):
        kind = getattr(Settings(), section) if section else Settings()
        texts = texts_of(type(kind))
        rows = [_row(variable, texts[variable.field]) for variable in VARIABLES.values() if variable.section == section]
        about = kind.__doc__ if section else _GENERAL
        yield "\n".join([f"## {section or 'projection'}\n", f"{about}\n", _TABLE, *rows, ""])


def texts_of(section: type[Section]) -> dict[str, str]:
    """What stands below each field in its source: read only here, so that no start pays for it."""
    (declared,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(declared, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _row(variable: Variable, text: str) -> str:
    names = [variable.name, *([f"{variable.name}_FILE"] if variable.secret else ())]
    shown = "<br>".join(f"`{name}`" for name in names)
    also = "".join(f"<br>also `{alias}`" for alias in variable.aliases)
    cells = (shown + also, _code(variable.default), variable.accepts, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(default: str) -> str:
    is_prose = "`" in default or " " in default or default in ("none", "all", "required", "host-pid-random")
    return default if is_prose else f"`{default}`"
