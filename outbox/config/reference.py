"""Renders docs/configuration.md from the settings; it does not write any file."""

from __future__ import annotations

from collections.abc import Iterator

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
    """The whole page as Markdown."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    sections = dict.fromkeys(variable.section for variable in VARIABLES.values())
    for section in sections:
        rows = [_row(variable) for variable in VARIABLES.values() if variable.section == section]
        yield "\n".join([f"## {section or 'projection'}\n", f"{_about(section)}\n", _TABLE, *rows, ""])


def _about(section: str) -> str:
    if not section:
        return _GENERAL
    kind = Settings.model_fields[section].annotation
    assert isinstance(kind, type)
    assert issubclass(kind, Section)
    return kind.__doc__ or ""


def _row(variable: Variable) -> str:
    names = [variable.name, *([f"{variable.name}_FILE"] if variable.secret else ())]
    shown = "<br>".join(f"`{name}`" for name in names)
    also = "".join(f"<br>also `{alias}`" for alias in variable.aliases)
    text = " ".join(part for part in (variable.meaning, variable.tradeoff) if part)
    cells = (shown + also, _code(variable.default), variable.accepts, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _code(default: str) -> str:
    is_prose = "`" in default or " " in default or default in ("none", "all", "required", "host-pid-random")
    return default if is_prose else f"`{default}`"
