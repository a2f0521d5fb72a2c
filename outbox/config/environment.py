"""Owns which environment variables are ours and where each value comes from; it does not validate values."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outbox.config.setting import Variable
from outbox.config.settings import VARIABLES, Source
from outbox.config.values import short
from outbox.errors import ConfigProblem

_OURS = ("OUTBOX_", "ELASTIC_")
_NOT_OURS = ("OUTBOX_TEST_*", "ELASTIC_APM_*")
# A service called "outbox" or "elastic-..." makes Kubernetes put these into every container of the namespace.
_KUBERNETES = ("*_SERVICE_HOST", "*_SERVICE_PORT*", "*_PORT_*_TCP*")
_SECRET_FILE_BYTES = 65_536


@dataclass(frozen=True)
class Given:
    """One value as it was given, not yet validated."""

    value: Any
    source: Source
    file: Path | None = None


@dataclass(frozen=True)
class Unusable:
    """A value that was given twice, or in a file that cannot be read."""

    problem: ConfigProblem


def injected(name: str, value: str) -> bool:
    """Whether Kubernetes, not a person, set this; a service may even shadow one of our ports."""
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in _KUBERNETES):
        return name not in VARIABLES
    return name.endswith("_PORT") and value.startswith("tcp://")


def present(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what is empty (`X=` in a compose file means unset) or injected."""
    return {name: value for name, value in environ.items() if value.strip() and not injected(name, value)}


def known_names() -> list[str]:
    """Every name that may be set: variables, their aliases, and `_FILE` for secrets."""
    names = [name for variable in VARIABLES.values() for name in (variable.name, *variable.aliases)]
    return names + [f"{variable.name}_FILE" for variable in VARIABLES.values() if variable.secret]


def unknown_names(environ: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """A problem for each name of ours that nothing reads. A typo must not silently mean the default."""
    known = known_names()
    for name in sorted(present(environ)):
        strange = name.startswith(_OURS) and name not in known
        if strange and not any(fnmatch.fnmatchcase(name, pattern) for pattern in _NOT_OURS):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            remedy = f"Did you mean {close[0]}?" if close else "Remove it; docs/configuration.md lists all names."
            yield ConfigProblem(name, "is not a setting of this program", remedy)


def unknown_flags(flags: Mapping[str, object]) -> Sequence[str]:
    """Flags come from our own commands, so a wrong one is our bug, not the user's mistake."""
    return sorted(set(flags) - set(VARIABLES))


def find(variable: Variable, environ: Mapping[str, str], flags: Mapping[str, object]) -> Given | Unusable | None:
    """The value of one variable: flag, then environment or file, else none."""
    flag = flags.get(variable.name)
    if flag is not None and flag not in ((), []):
        return Given(flag, "flag")
    names = [name for name in (variable.name, *variable.aliases) if name in environ]
    file_name = f"{variable.name}_FILE"
    if variable.secret and file_name in environ:
        return _contradiction(variable, [*names, file_name]) if names else _from_file(file_name, environ[file_name])
    if len({environ[name].strip() for name in names}) > 1:
        return _contradiction(variable, names)
    return Given(environ[names[0]].strip(), "environment") if names else None


def _contradiction(variable: Variable, names: list[str]) -> Unusable:
    return Unusable(ConfigProblem(variable.name, f"is given by {' and by '.join(names)}", "Keep one of them."))


def _from_file(name: str, path: str) -> Given | Unusable:
    file = Path(path.strip())
    try:
        return Given(read_secret_file(file), "file", file)
    except OSError as error:
        what = f"cannot be read: {short(file)} ({error.strerror or type(error).__name__})"
    except ValueError as error:
        what = f"cannot be used: {short(file)} {error}"
    return Unusable(ConfigProblem(name, what, "Give the path of a readable file that holds only the secret."))


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
