"""Reads all settings at once and reports all problems together; it holds no rule itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from outbox.config.checks import cross_problems
from outbox.config.connections import NO_DATABASE
from outbox.config.environment import Given, Unusable, find, present, unknown_flags, unknown_names
from outbox.config.setting import Section, Variable
from outbox.config.settings import VARIABLES, Settings
from outbox.errors import ConfigProblem, ConfigurationError
from outbox.policy.safe_text import redact_dsn

_LONGEST_SHOWN = 80
_NO_FLAGS: Mapping[str, object] = MappingProxyType({})


def load_settings(
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] = _NO_FLAGS,
    *,
    require_database: bool = True,
) -> Settings:
    """Flags (by variable name; None means not given) override the environment, which overrides defaults."""
    if strange := unknown_flags(flags):
        raise ValueError(f"flags that are not variables: {', '.join(strange)}")
    environ = os.environ if environ is None else environ
    given, problems = _gather(present(environ), flags)
    settings, rejected = _build(given)
    problems += rejected
    wrong = {problem.variable.removesuffix("_FILE") for problem in problems}
    problems += unknown_names(environ)
    problems += cross_problems(settings, frozenset(wrong))
    if require_database and settings.database.url is None and "DATABASE_URL" not in wrong:
        problems.append(NO_DATABASE)
    if problems:
        raise ConfigurationError(problems)
    settings._sources = MappingProxyType({name: found.source for name, found in given.items()})
    return settings


def _gather(environ: Mapping[str, str], flags: Mapping[str, object]) -> tuple[dict[str, Given], list[ConfigProblem]]:
    given: dict[str, Given] = {}
    problems: list[ConfigProblem] = []
    for variable in VARIABLES.values():
        found = find(variable, environ, flags)
        if isinstance(found, Unusable):
            problems.append(found.problem)
        elif found is not None:
            given[variable.name] = found
    return given, problems


def _build(given: Mapping[str, Given]) -> tuple[Settings, list[ConfigProblem]]:
    """The tree, and what it rejected. Rejected values take their defaults, so that the rest can be checked."""
    try:
        return Settings.model_validate(_tree(given)), []
    except ValidationError as error:
        rejected = list(_rejected(error, given))
    wrong = {problem.variable for problem in rejected}
    rest = {name: found for name, found in given.items() if name not in wrong}
    return Settings.model_validate(_tree(rest)), rejected


def _tree(given: Mapping[str, Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {name: {} for name, info in Settings.model_fields.items() if _is_section(info.annotation)}
    for name, found in given.items():
        variable = VARIABLES[name]
        place = tree[variable.section] if variable.section else tree
        place[variable.field] = found.value
        if found.file is not None:
            place[f"{variable.field}_file"] = found.file
    return tree


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _rejected(error: ValidationError, given: Mapping[str, Given]) -> Iterator[ConfigProblem]:
    by_path = {variable.path: variable for variable in VARIABLES.values()}
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = [str(step) for step in item["loc"]]
        depth = 2 if ".".join(where[:2]) in by_path else 1
        variable = by_path[".".join(where[:depth])]
        # A default that is derived from a rejected value is rejected as well; only the cause is reported.
        if variable.name in given:
            inside = f" at {where[depth]!r}" if len(where) > depth else ""
            yield _problem(variable, given[variable.name], _plain(item["msg"]) + inside)


def _plain(message: str) -> str:
    """pydantic's message without its subject: the value is shown before it."""
    message = message.removeprefix("Value error, ")
    if "match pattern" in message:
        return "is not accepted"
    return message.replace("Input should", "should", 1).replace("String should", "should", 1)


def _problem(variable: Variable, found: Given, text: str) -> ConfigProblem:
    remedy = f"Use {variable.accepts}, or leave it unset (default: {variable.default})."
    if variable.secret or variable.show is not None:
        return ConfigProblem(variable.name, text, f"Use {variable.accepts}.")
    shown = redact_dsn(str(found.value))
    shown = shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "..."
    return ConfigProblem(variable.name, f"{shown!r} {text}", remedy)
