"""Owns the types of values (lists, maps, names, addresses); it does not know who uses them."""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

INDEX_FORBIDDEN = set('\\/*?"<>| ,#:')
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LONGEST_PATH = 200
_DRIVER = "postgresql+psycopg://"
# The usual form, narrower than libpq's. A property test checks that libpq accepts all that this accepts. All else is
# parsed by libpq.
_WORD = r"(?:[A-Za-z0-9_.~!$*+-]|%[2-7][0-9A-Fa-f])"
_OPTION = rf"(?:sslmode|sslrootcert|connect_timeout|application_name|target_session_attrs)={_WORD}+"
PLAIN_DSN = re.compile(
    rf"postgres(?:ql)?://(?:{_WORD}+(?::{_WORD}*)?@)?[A-Za-z0-9.-]+(?::[0-9]{{1,5}})?(?:/{_WORD}*)?"
    rf"(?:\?{_OPTION}(?:&{_OPTION})*)?"
)


def lower_case(value: Any) -> Any:
    """INFO and info mean the same."""
    return value.lower() if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    names = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(stripped for name in names if (stripped := str(name).strip())))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ValueError(f"names {', '.join(map(repr, twice))} more than once")
    return dict(pairs)


def _mapped(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (character {error.pos + 1}: {error.msg})") from None
    except RecursionError:
        raise ValueError("is nested too deeply for an object of names and values") from None
    if not isinstance(found, dict):
        raise ValueError("is JSON but not an object")
    return found


def _frozen(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(value))


def is_readable_file(path: Path) -> bool:
    """A path that the system rejects (too long, a NUL in it) is not a file."""
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


def short(path: Path) -> str:
    """A path for an error message; what is not really a path may be very long."""
    return text if len(text := str(path)) <= _LONGEST_PATH else f"{text[:_LONGEST_PATH]}..."


def index_name(name: str) -> str:
    """A name Elasticsearch accepts for an index or alias; wildcards would write to many."""
    if not name or name in (".", "..") or len(name.encode()) > 255:
        raise ValueError("must be 1 to 255 bytes and not '.' or '..'")
    if name != name.lower():
        raise ValueError("must be lower case")
    if name[0] in "-_+":
        raise ValueError("must not begin with -, _ or +")
    if INDEX_FORBIDDEN & set(name) or any(ord(character) < 32 for character in name):
        raise ValueError('must not contain \\ / * ? " < > | , # : or a blank')
    return name


def relation_name(name: str) -> str:
    """A table or view, with or without its schema. It becomes SQL text, so nothing else is accepted."""
    if not _IDENTIFIER.fullmatch(name):
        raise ValueError("must be a plain name or schema.name: letters, digits and _")
    return name


def network(text: str) -> str:
    """An IP address, or a network without host bits. Names are rejected: they would need DNS at every request."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError("must be IP addresses or networks such as 10.0.0.0/8") from None
    return text


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("is not a valid address (is the port a number?)") from None
    return parts


def http_address(url: str) -> str:
    """An http or https address. Credentials in it are rejected: they would end up in logs and error messages."""
    parts = _split(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with http:// or https://")
    if not parts.hostname:
        raise ValueError("names no host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("holds a user name or password")
    return url


def server_address(url: str) -> str:
    """An http address of a server. A query or fragment is rejected: it would be dropped silently."""
    parts = _split(http_address(url))
    if parts.query or parts.fragment:
        raise ValueError("must not have a query (?...) or fragment (#...)")
    return url.rstrip("/")


def _dsn(value: Any) -> Any:
    text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
    text = text.strip()
    if text.startswith(_DRIVER):
        text = "postgresql://" + text.removeprefix(_DRIVER)
    if _SCHEME.match(text) and not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("must begin with postgresql://, postgres:// or postgresql+psycopg://")
    _require_valid_dsn(text)
    return text


def _require_valid_dsn(text: str) -> None:
    if PLAIN_DSN.fullmatch(text):
        return
    # Late import: psycopg adds 0.1 s of CPU to the 0.24 s after which `outbox run` answers probes.
    # libpq's own message may quote the password, so it is not repeated.
    from psycopg import ProgrammingError  # noqa: PLC0415
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        conninfo_to_dict(text)
    except ProgrammingError:
        raise ValueError("is not a connection string that libpq accepts") from None


def _one_line(secret: SecretStr) -> SecretStr:
    if any(ord(character) < 32 for character in secret.get_secret_value()):
        raise ValueError("must be one line without control characters")
    return secret


def _signing(secret: SecretStr) -> SecretStr:
    """Late import: few settings hold one, and the health pages answer before anything else is loaded."""
    from outbox.policy.webhook import key_of  # noqa: PLC0415

    key_of(secret.get_secret_value())
    return secret


CommaList = Annotated[tuple[str, ...], BeforeValidator(_listed)]
NetworkList = Annotated[tuple[Annotated[str, AfterValidator(network)], ...], BeforeValidator(_listed)]
IndexName = Annotated[str, AfterValidator(index_name)]
EntityType = Annotated[str, Field(min_length=1)]
IndexMap = Annotated[Mapping[EntityType, IndexName], BeforeValidator(_mapped), AfterValidator(_frozen)]
KindCounts = Annotated[
    Mapping[EntityType, Annotated[int, Field(ge=1, strict=True)]],
    BeforeValidator(_mapped),
    AfterValidator(_frozen),
]
KindRates = Annotated[
    Mapping[EntityType, Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]],
    BeforeValidator(_mapped),
    AfterValidator(_frozen),
]
RelationName = Annotated[str, AfterValidator(relation_name)]
HttpAddress = Annotated[str, AfterValidator(http_address)]
ServerAddress = Annotated[str, AfterValidator(server_address)]
Dsn = Annotated[SecretStr, BeforeValidator(_dsn)]
OneLineSecret = Annotated[SecretStr, AfterValidator(_one_line)]
SigningSecret = Annotated[OneLineSecret, AfterValidator(_signing)]
