"""Says where a document cannot fit a mapping, without sending it; knows only what the types themselves decide.

Elasticsearch decides: formats of dates, analysers, limits and scripts are not judged here, and named as such.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_WHOLE: Final = {"long": 63, "integer": 31, "short": 15, "byte": 7}
_DECIMAL: Final = frozenset({"double", "float", "half_float", "scaled_float"})
_OBJECTS: Final = frozenset({"object", "nested"})
_NUMBER: Final = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_TEXTS: Final = frozenset({"text", "keyword", "constant_keyword", "wildcard", "match_only_text"})
_SCALARS: Final = frozenset({*_TEXTS, *_WHOLE, *_DECIMAL, "boolean", "date", "ip"})
_LISTS: Final = frozenset({"geo_point", "dense_vector", "geo_shape", "shape", "completion"})  # a list is one value
_DEEPEST: Final = 20


@dataclass(slots=True)
class MappingFit:
    """`misfits` would be refused; `unjudged` names fields whose type only Elasticsearch can judge."""

    misfits: list[str] = field(default_factory=list)
    unjudged: set[str] = field(default_factory=set)


def fit(payload: bytes, mapping: Mapping[str, Any]) -> MappingFit:
    """`mapping` is the `mappings` of an index: its `properties` and its `dynamic`."""
    found = MappingFit()
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        found.misfits.append("the payload is not JSON")
        return found
    if not isinstance(document, dict):
        found.misfits.append("the payload is not an object")
        return found
    _object(document, mapping, "", mapping.get("dynamic"), found)
    return found


def _object(value: Mapping[str, Any], mapping: Mapping[str, Any], path: str, dynamic: Any, found: MappingFit) -> None:
    dynamic = mapping.get("dynamic", dynamic)
    known = mapping.get("properties", {})
    if path.count(".") >= _DEEPEST:
        return
    for name, member in value.items():
        place = f"{path}{name}"
        about = _property(known, name)
        if about is None:
            if str(dynamic).lower() == "strict":
                found.misfits.append(f"{place} is not in the mapping, which is strict")
        else:
            _field(member, about, place, dynamic, found)


def _property(known: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """`{"a.b": 1}` means the field b of the object a."""
    about = known.get(name)
    if about is None and "." in name:
        first, _, rest = name.partition(".")
        return _property(known.get(first, {}).get("properties", {}), rest)
    return about if isinstance(about, Mapping) else None


def _field(value: Any, about: Mapping[str, Any], place: str, dynamic: Any, found: MappingFit) -> None:
    kind = str(about.get("type", "object"))
    if value is None or (kind in _OBJECTS and about.get("enabled") is False):
        return
    if isinstance(value, list) and kind not in _LISTS:
        for each in value:
            _field(each, about, place, dynamic, found)
    elif kind in _OBJECTS:
        if isinstance(value, Mapping):
            _object(value, about, f"{place}.", dynamic, found)
        else:
            found.misfits.append(f"{place} is {_name(value)}, the mapping has an object")
    elif about.get("ignore_malformed") in (True, "true"):
        return
    else:
        _scalar(value, kind, place, found)


def _scalar(value: Any, kind: str, place: str, found: MappingFit) -> None:
    wrong = _wrong(value, kind)
    if wrong is None:
        found.unjudged.add(f"{place} ({kind})")
    elif wrong:
        found.misfits.append(f"{place} is {wrong}, the mapping has {kind}")


def _wrong(value: Any, kind: str) -> str | None:
    """What the value is, where that cannot fit; empty where it fits; None for types that are not judged here."""
    if isinstance(value, Mapping):
        return "an object" if kind in _SCALARS else None
    if kind in _TEXTS:
        return ""
    if kind == "boolean":
        return "" if isinstance(value, bool) or value in ("true", "false", "") else _name(value)
    return _wrong_number(value, kind) if kind in _WHOLE or kind in _DECIMAL else None


def _wrong_number(value: Any, kind: str) -> str:
    if isinstance(value, bool):
        return _name(value)
    if isinstance(value, str):
        return "" if _NUMBER.fullmatch(value) else "a text that is no number"
    bits = _WHOLE.get(kind)
    if bits is not None and not -(2**bits) <= value < 2**bits:
        return "a number out of range"
    return ""


def _name(value: Any) -> str:
    """The kind of a value, never the value."""
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
