"""Owns how one setting is declared and described, and the forms that a value may take. It reads no environment."""

import ipaddress
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic.fields import FieldInfo

T = TypeVar("T")
INDEX_FORBIDDEN = set('\\/*?"<>| ,#:')
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
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


def _listed(value: Any) -> Any:
    names = value.split(",") if isinstance(value, str) else value
    return tuple(dict.fromkeys(stripped for name in names if (stripped := str(name).strip())))


def _mapped(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (character {error.pos + 1}: {error.msg})") from None
    except RecursionError:
        raise ValueError("is nested too deeply for an object of names and values") from None
    if not isinstance(found, dict):
        raise ValueError("is JSON but not an object")
    return found


def _frozen(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(value))


def no_entries() -> Mapping[str, Any]:
    return _frozen({})


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


def server_addresses(urls: str) -> str:
    """One address, or several nodes of one cluster, separated by commas. A message names an entry by its place only:
    a password that holds a comma would be in it."""
    entries = [entry.strip() for entry in urls.split(",")]
    if len(entries) == 1:
        return server_address(entries[0])
    for place, entry in enumerate(entries, 1):
        try:
            entries[place - 1] = server_address(entry)
        except ValueError as error:
            raise ValueError(f"entry {place} of {len(entries)} {error if entry else 'is empty'}") from None
    _require_one_cluster(entries)
    return ",".join(entries)


def _require_one_cluster(urls: list[str]) -> None:
    """One scheme, because the credentials and the certificates are the same for all; each node once."""
    parts = [_split(url) for url in urls]
    if len({part.scheme for part in parts}) > 1:
        raise ValueError("mixes http and https: credentials must not travel in the clear to some nodes only")
    ports = {"http": 80, "https": 443}
    nodes = [(part.hostname, part.port or ports[part.scheme], part.path) for part in parts]
    for place, node in enumerate(nodes):
        if nodes.index(node) != place:
            raise ValueError(f"names one address twice: entries {nodes.index(node) + 1} and {place + 1}")


def cloud_id(text: str) -> str:
    """`NAME:BASE64`, where the decoded part is `host[:port]$elasticsearch id$kibana id`."""
    cloud_address(text)
    return text


def cloud_address(text: str) -> str:
    """The address of Elasticsearch in a Cloud ID. Late import: few settings hold one."""
    from elastic_transport.client_utils import parse_cloud_id  # noqa: PLC0415

    try:
        host, port = parse_cloud_id(text).es_address or ("", 0)
    except ValueError:
        host, port = "", 0
    if not _HOST.fullmatch(host) or not 0 < port < 65536:
        what = "is not a Cloud ID with the address of an Elasticsearch in the usual form"
        raise ValueError(f"{what}: set ELASTIC_URL to the deployment's address instead")
    return f"https://{host}:{port}"


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
Mapped = Annotated[Mapping[EntityType, T], BeforeValidator(_mapped), AfterValidator(_frozen)]
IndexMap = Mapped[IndexName]
KindCounts = Mapped[Annotated[int, Field(ge=1, strict=True)]]
KindRates = Mapped[Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False)]]
RelationName = Annotated[str, AfterValidator(relation_name)]
HttpAddress = Annotated[str, AfterValidator(http_address)]
ServerAddress = Annotated[str, AfterValidator(server_address)]
ServerAddresses = Annotated[str, AfterValidator(server_addresses)]
CloudId = Annotated[str, AfterValidator(cloud_id)]
Dsn = Annotated[SecretStr, BeforeValidator(_dsn)]
OneLineSecret = Annotated[SecretStr, AfterValidator(_one_line)]
SigningSecret = Annotated[OneLineSecret, AfterValidator(_signing)]


# A year and a century: these fit PostgreSQL's timestamps, timedelta and a thread's wait.
_LONGEST = {"SECONDS": 31_536_000, "DAYS": 36_500}
_BOUNDS = (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below"))


class Section(BaseModel):
    """A frozen group of settings. Its validation errors never show the given value."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


@dataclass(frozen=True)
class Variable:
    """One environment variable, as the docs, `config print` and error messages describe it."""

    name: str
    section: str
    field: str
    default: str
    accepts: str
    secret: bool
    aliases: tuple[str, ...]
    show: Callable[[str], str] | None
    is_reread: bool  # the path of its file is kept, too

    @property
    def path(self) -> str:
        return f"{self.section}.{self.field}" if self.section else self.field


def setting(
    name: str,
    default: Any = None,
    default_text: str | None = None,
    *,
    accepts: str = "",
    secret: bool = False,
    aliases: tuple[str, ...] = (),
    show: Callable[[str], str] | None = None,
    **constraints: Any,
) -> Any:
    """A field with its variable; the docs take what it means from the text below it. A default that is a function is
    called. Returns Any, as pydantic's Field does, to fit any declared type."""
    about: dict[str, Any] = {"name": name, "default": default_text or _as_text(default), "accepts": accepts}
    about |= {"secret": secret, "aliases": aliases, "show": show}
    if longest := _LONGEST.get(name.rpartition("_")[2]):
        constraints = {"le": longest, "allow_inf_nan": False} | constraints
    constraints["default_factory" if callable(default) else "default"] = default
    return Field(json_schema_extra=about, repr=not secret and show is None, **constraints)


def variables_of(model: type[BaseModel], section: str = "") -> Iterator[Variable]:
    for field, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from variables_of(info.annotation, field)
        elif isinstance(info.json_schema_extra, dict):
            about: dict[str, Any] = dict(info.json_schema_extra)
            about["accepts"] = about["accepts"] or _accepted(info)
            reread = f"{field}_file" in model.model_fields
            yield Variable(section=section, field=field, is_reread=reread, **about)


def _accepted(info: FieldInfo) -> str:
    kinds = [kind for kind in (get_args(info.annotation) or (info.annotation,)) if kind is not type(None)]
    if get_origin(info.annotation) is Literal:
        return ", ".join(f"`{kind}`" for kind in kinds[:-1]) + f" or `{kinds[-1]}`"
    if kinds[0] is bool:
        return "`true` or `false`"
    if kinds[0] in (int, float):
        noun = "a whole number" if kinds[0] is int else "a number"
        return " ".join([noun, *_bounds(info)])
    return "text"


def _bounds(info: FieldInfo) -> Iterator[str]:
    for attribute, preposition in _BOUNDS:
        for rule in info.metadata:
            bound = getattr(rule, attribute, None)
            if bound is not None:
                yield f"{preposition} {bound:g}" if isinstance(bound, float) else f"{preposition} {bound}"


def _as_text(default: Any) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)
