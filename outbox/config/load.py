"""Reads all settings at once from flags, environment and files, and reports all problems together. It holds no rule."""

import difflib
import fnmatch
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr, ValidationError

from outbox.config.connections import NO_DATABASE
from outbox.config.declaration import Variable, short
from outbox.config.settings import VARIABLES, Settings, Source, cross_problems
from outbox.config.streaming import names_of
from outbox.errors import ConfigProblem, ConfigurationError
from outbox.policy.redact import redact_dsn

_OURS = ("OUTBOX_", "ELASTIC_")
_NOT_OURS = ("OUTBOX_TEST_*", "ELASTIC_APM_*")
# A service called "outbox" or "elastic-..." makes Kubernetes put these into every container of the namespace.
_KUBERNETES = ("*_SERVICE_HOST", "*_SERVICE_PORT*", "*_PORT_*_TCP*")
_SECRET_FILE_BYTES = 65_536
_LONGEST_SHOWN = 80
_NO_FLAGS: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True)
class Given:
    value: Any
    source: Source
    file: Path | None = None


def load_settings(
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] = _NO_FLAGS,
    *,
    require_database: bool = True,
) -> Settings:
    """Flags (by variable name; None means not given) override the environment, which overrides defaults."""
    if strange := sorted(set(flags) - set(VARIABLES)):  # our bug, not the user's mistake
        raise ValueError(f"flags that are not variables: {', '.join(strange)}")
    environ = os.environ if environ is None else environ
    given, problems = _gather(present(environ), flags)
    if "OUTBOX_PROJECTION" in given:
        names = names_of(str(given["OUTBOX_PROJECTION"].value))
        given = {name: Given(value, "default") for name, value in names.items()} | given
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


def as_environment(settings: Settings) -> dict[str, str]:
    """What was set, as variables that give the same settings elsewhere: for a process of ours, never to be shown."""
    given = (variable for variable in VARIABLES.values() if settings.source_of(variable.name) != "default")
    return {variable.name: _as_text(settings.value_of(variable)) for variable in given}


def _as_text(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _gather(environ: Mapping[str, str], flags: Mapping[str, object]) -> tuple[dict[str, Given], list[ConfigProblem]]:
    given: dict[str, Given] = {}
    problems: list[ConfigProblem] = []
    for variable in VARIABLES.values():
        try:
            if (found := find(variable, environ, flags)) is not None:
                given[variable.name] = found
        except ConfigurationError as unusable:
            problems += unusable.problems
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
    tree: dict[str, Any] = {}
    for name, found in given.items():
        variable = VARIABLES[name]
        place = tree.setdefault(variable.section, {}) if variable.section else tree
        place[variable.field] = found.value
        if found.file is not None and variable.is_reread:
            place[f"{variable.field}_file"] = found.file
    return tree


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


def injected(name: str, value: str) -> bool:
    """Whether Kubernetes, not a person, set this; a service may even shadow one of our ports."""
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _KUBERNETES):
        return name not in VARIABLES
    return name.endswith("_PORT") and value.startswith("tcp://")


def present(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what is empty (`X=` in a compose file means unset) or injected."""
    return {name: value for name, value in environ.items() if value.strip() and not injected(name, value)}


def known_names() -> list[str]:
    names = [name for variable in VARIABLES.values() for name in (variable.name, *variable.aliases)]
    return names + [f"{variable.name}_FILE" for variable in VARIABLES.values() if variable.secret]


def unknown_names(environ: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """A problem for each name of ours that nothing reads. A typo must not silently mean the default."""
    known = known_names()
    for name in sorted(present(environ)):
        if (
            name not in known
            and name.startswith(_OURS)
            and not any(fnmatch.fnmatchcase(name, pattern) for pattern in _NOT_OURS)
        ):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            remedy = f"Did you mean {close[0]}?" if close else "Remove it; docs/configuration.md lists all names."
            yield ConfigProblem(name, "is not a setting of this program", remedy)


def find(variable: Variable, environ: Mapping[str, str], flags: Mapping[str, object]) -> Given | None:
    """The value of one variable: flag, then environment or file, else none. Raises for what cannot be used."""
    flag = flags.get(variable.name)
    if flag is not None and flag not in ((), []):
        return Given(flag, "flag")
    names = [name for name in (variable.name, *variable.aliases) if name in environ]
    file_name = f"{variable.name}_FILE"
    from_file = [file_name] if variable.secret and file_name in environ else []
    if (from_file and names) or len({environ[name].strip() for name in names}) > 1:
        what = f"is given by {' and by '.join(names + from_file)}"
        raise ConfigurationError([ConfigProblem(variable.name, what, "Keep one of them.")])
    if from_file:
        return _from_file(file_name, environ[file_name])
    return Given(environ[names[0]].strip(), "environment") if names else None


def _from_file(name: str, path: str) -> Given:
    file = Path(path.strip())
    try:
        return Given(read_secret_file(file), "file", file)
    except OSError as error:
        what = f"cannot be read: {short(file)} ({error.strerror or type(error).__name__})"
    except ValueError as error:
        what = f"cannot be used: {short(file)} {error}"
    remedy = "Give the path of a readable file that holds only the secret."
    raise ConfigurationError([ConfigProblem(name, what, remedy)])


def read_secret_file(path: Path) -> str:
    """The secret in a file, without the newline that editors add. Callers may read it again: keys are rotated."""
    with path.open("rb") as file:
        content = file.read(_SECRET_FILE_BYTES + 1)
    if len(content) > _SECRET_FILE_BYTES:
        raise ValueError("is larger than 64 KiB")
    try:
        text = content.decode().strip()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    if not text:
        raise ValueError("is empty")
    return text
