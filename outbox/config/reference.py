"""Owns the configuration page, made from the settings themselves; it does not write any file."""

from __future__ import annotations

from collections.abc import Iterator

from outbox.config.setting import Section, Variable
from outbox.config.settings import VARIABLES, Settings

_HEAD = """\
# Configuration

<!-- Made by scripts/docs from outbox/config; change the text there. -->

Flags win over the environment, the environment over defaults. An empty value counts as unset. A secret may
also come from a file: set `NAME_FILE` to its path (not both). All problems are reported together, exit code
78.

A name that begins with `OUTBOX_` or `ELASTIC_` and is not listed here is an error with a suggestion, so
that a typing error never passes as a default; `OUTBOX_TEST_*`, `ELASTIC_APM_*` and what Kubernetes injects
for services are left alone.

`outbox config check` says whether the configuration is usable; `outbox config print` shows every value and
where it came from, without secrets. Seconds and days may have decimals.
"""
_TABLE = "| variable | default | accepts | what it does, what it costs |\n|---|---|---|---|"
_GENERAL = "What is projected, and under which name."


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
    words = "`" in default or " " in default or default in ("none", "all", "required", "host-pid-random")
    return default if words else f"`{default}`"
