"""Owns what may be stored or logged of an error: values and secrets out, names and types kept. It does not classify."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

MASK: Final = "***"
LONGEST_ERROR_BYTES: Final = 2048
LONGEST_DETAIL_BYTES: Final = 16_384
_LONGEST_READ: Final = 16_384  # a keyword of 32 KB is quoted whole; regexes over it would cost milliseconds
_DEEPEST_CAUSE: Final = 8

# The parser quotes the source itself, and where it stood.
_SOURCE: Final = (r"\s*(?:\(start marker )?at \[Source:.*", "")
_Rewrite = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

# A value stands at the end of these texts and may hold quotes and brackets of its own: all of the rest goes.
_TO_THE_END: Final = (
    r"(Preview of field's value: ).*",
    r"(Preview of invalid vector: ).*",
    r"(For input string: ).*",
    r"(Invalid format: ).*",
)
# A value stands before a fixed text: greedy, because it may hold its own closing bracket.
_UP_TO: Final = (
    r"(date field )(?:\[.*\](?= with format)|\[.*\])",
    r"((?:[Vv]alue|symbol|geohash|join name|name:?|whitespace:) )(?:\[.*\](?= (?:as|is|in|of|for)\b)|\[.*\])",
    r"(Numeric value )\(.*?\)",
    r"(first immense term is: )(?:'.*?'|'.*)",
    r"((?:token|Text|Unparseable date:?) )(?:(['\"]).*\2|['\"].*)",
)
_SECRETS: Final = (
    (r"(?i)([a-z][a-z0-9+.-]*://[^\s:/@]*):\S*@", rf"\1:{MASK}@"),
    (
        r"(?i)(\w*(?:password|passwd|pwd|secret|api_?key|token)\s*[=:]\s*)(?:'[^']*'?|\"[^\"]*\"?|[^\s&,;]+)",
        rf"\1{MASK}",
    ),
    (r"(?i)\b(ApiKey|Basic|Bearer)\s+[\w+/=.~:-]{6,}", rf"\1 {MASK}"),
    (r"(?i)(authorization\s*[=:]\s*)\S+(?: [\w+/=.~:*-]+)?", rf"\1{MASK}"),
)
# `Duplicate field 'aa'` names a field; written with brackets it survives the quotes' rule.
_FIELD_IN_QUOTES: Final = (r"\b([Ff]ield)[ =](['\"])([\w.@-]{1,200})\2", r"\1 [\3]")
# From the first quote to the last, or to the end where it was cut: a value may hold quotes too.
_QUOTED: Final = (
    (r"(?<!\w)'(?:.*'(?!\w)|.*)", f"'{MASK}'"),
    (r"\"(?:.*\"|.*)", f'"{MASK}"'),
)

# What stands in brackets is a name after these words, and a value after all others.
_NAMED: Final = re.compile(
    r"(?:fields?|types?|mapper|mapping for|object|within|introduction of|format|index|indices|alias|aliases|template"
    r"|patterns?|pipeline|settings?|parameter|request|privileges|any of the|limit of|documents|limit|depth|exceeded"
    r"|version|provided|node|shards?|line|expected|or|to|than|by:|allowed|maximum|at most|larger|breaker|user|key id"
    r"|flag|length|action) ?$"
)
_PLAIN: Final = re.compile(
    r"\d+:\d+|true|false|[a-z]|_\w+|-?\d{1,6}|\d+/[\d.]+[kmgt]?b|(?:FORBIDDEN|TOO_MANY_REQUESTS|SERVICE_UNAVAILABLE)/.*"
    r"|(?:indices|cluster):[\w/*:]+|(?:action|cluster|index|indices|http|indexing_pressure)\.[\w.]+"
    r"|(?:VALUE|START|END|FIELD)_[A-Z_]+|[a-z_]+_exception"
)
_BRACKET: Final = re.compile(r"\[([^\[\]]*)(?:\]|\Z)")


def _bracket(match: re.Match[str]) -> str:
    named = _NAMED.search(match.string, 0, match.start()) if match.start() else None
    if named or _PLAIN.fullmatch(match[1]) or match.string[match.end() : match.end() + 1] == "[":
        return match[0]
    # `[articles-v1][0]`: a shard. The second bracket follows the first.
    return match[0] if match.string[: match.start()].endswith("]") else f"[{MASK}]"


_REWRITES: Final[tuple[_Rewrite, ...]] = tuple(
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        _SOURCE,
        *((pattern, rf"\1{MASK}") for pattern in _TO_THE_END),
        *((pattern, rf"\1[{MASK}]") for pattern in _UP_TO),
        *_SECRETS,
        _FIELD_IN_QUOTES,
        *_QUOTED,
        (r"\s+", " "),
    )
)


def redact(text: str) -> str:
    """The text without values and secrets, at most 2 KB. Give each reason of a chain apart: rules run to its end."""
    text = text[:_LONGEST_READ]
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return cut(_BRACKET.sub(_bracket, text), LONGEST_ERROR_BYTES)


def cut(text: str, most_bytes: int) -> str:
    """The beginning that fits, whole characters only. Lone surrogates and NUL cannot be stored: they become `?`."""
    raw = text.replace("\x00", "?").encode("utf-8", "replace")
    if len(raw) <= most_bytes:
        return raw.decode()
    return raw[: most_bytes - 3].decode("utf-8", "ignore") + "..."


def causes(error: object) -> Iterator[Mapping[str, Any]]:
    """The error and what it was caused by, outermost first; `root_cause` only adds what the chain does not hold."""
    seen: list[tuple[object, object]] = []
    queue: list[object] = [error]
    while queue and len(seen) < _DEEPEST_CAUSE:
        cause = queue.pop(0)
        if not isinstance(cause, Mapping) or (key := (cause.get("type"), cause.get("reason"))) in seen:
            continue
        seen.append(key)
        yield cause
        roots = cause.get("root_cause")
        queue.append(cause.get("caused_by"))
        queue.extend(roots[:2] if isinstance(roots, list) else ())


def summary(error: object) -> str:
    """One line for `error`: type and reason of each cause, redacted one by one."""
    if isinstance(error, str):
        return redact(error)
    told = [": ".join(part for part in _type_and_reason(cause) if part) for cause in causes(error)]
    return cut(", caused by ".join(filter(None, told)) or "no reason given", LONGEST_ERROR_BYTES)


def _type_and_reason(cause: Mapping[str, Any]) -> tuple[str, str]:
    reason = cause.get("reason")
    return str(cause.get("type") or "")[:200], redact(str(reason)) if reason else ""


def detail(error: object) -> dict[str, Any]:
    """The cause chain for `error_detail`: types and redacted reasons, at most 16 KB as JSON."""
    if not isinstance(error, Mapping):
        return {"reason": redact(str(error))}
    chain = [dict(zip(("type", "reason"), _type_and_reason(cause), strict=True)) for cause in causes(error)]
    while True:
        nested: dict[str, Any] = {}
        for cause in reversed(chain):
            nested = {**cause, "caused_by": nested} if nested else {**cause}
        if len(json.dumps(nested)) <= LONGEST_DETAIL_BYTES:
            return nested
        chain.pop()


_VARYING: Final = (
    (re.compile(r"'[^']*'|\"[^\"]*\""), "'?'"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "#"),
    (re.compile(r"\b(?=[0-9a-z_-]*\d)[0-9a-z_-]{20,}\b", re.IGNORECASE), "#"),
    (re.compile(r"[-+]?\d+(?:\.\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)


def fingerprint(reason: str, error: object) -> str:
    """The same 16 hex digits for the same kind of failure, whatever the ids, numbers, values and index versions."""
    text = error if isinstance(error, str) else summary(error)
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return hashlib.sha256(f"{reason}\n{text[:1000]}".encode("utf-8", "replace")).hexdigest()[:16]
