"""Owns what may be stored or logged of an error: values and secrets out, names and types kept. It does not classify."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

MASK: Final = "***"
LONGEST_ERROR_BYTES: Final = 2048
LONGEST_DETAIL_BYTES: Final = 16_384
# Longer texts quote a value at length. The rules are quadratic at worst: 5 ms for this much hostile text, 60 s for ten
# times as much before each of them had a bound.
_LONGEST_READ: Final = 4096
_DEEPEST_CAUSE: Final = 8


class _Rule(NamedTuple):
    """Asked only where one of its words is in the text, in any case: 30 us a text instead of 180."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str


def _rule(words: str, pattern: str, replacement: str) -> _Rule:
    return _Rule(tuple(words.split("|")), re.compile(pattern, re.DOTALL), replacement)


_RULES: Final = (
    # The parser quotes the source itself, and where it stood.
    _rule("at [source:", r" ?(?:\(start marker )?at \[Source:.*", ""),
    # A value stands at the end of these and may hold quotes and brackets of its own: all of the rest goes.
    _rule("preview of", r"(Preview of (?:field's value|invalid vector): ).*", rf"\1{MASK}"),
    _rule("for input string", r"(For input string: ).*", rf"\1{MASK}"),
    _rule("invalid format", r"(Invalid format: ).*", rf"\1{MASK}"),
    # A value stands before a fixed text: greedy, because it may hold its own closing bracket.
    _rule("date field", r"(date field )(?:\[.*\](?= with format)|\[.*\])", rf"\1[{MASK}]"),
    _rule(
        "value [|symbol|geohash|name|whitespace:",
        r"((?:[Vv]alue|symbol|geohash|name:?|whitespace:) )(?:\[.*\](?= (?:as|is|in|of|for)\b)|\[.*\])",
        rf"\1[{MASK}]",
    ),
    _rule("numeric value", r"(Numeric value )\(.*?\)", rf"\1[{MASK}]"),
    _rule("immense term", r"(first immense term is: )(?:'.*?'|'.*)", rf"\1[{MASK}]"),
    _rule("token|text|unparseable", r"((?:token|Text|Unparseable date:?) )(?:(['\"]).*\2|['\"].*)", rf"\1[{MASK}]"),
    _rule("://", r"(?i)(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{0,30}://[^\s:/@]*):\S*@", rf"\1:{MASK}@"),
    _rule(
        "password|passwd|pwd|secret|api|token",
        r"(?i)(?<!\w)(\w{0,40}(?:password|passwd|pwd|secret|api_?key|token)\s?[=:]\s?)"
        r"(?:'[^']*'?|\"[^\"]*\"?|[^\s&,;]+)",
        rf"\1{MASK}",
    ),
    _rule("apikey|basic|bearer", r"(?i)\b(ApiKey|Basic|Bearer)\s[\w+/=.~:-]{6,}", rf"\1 {MASK}"),
    _rule("authorization", r"(?i)(authorization\s?[=:]\s?)\S+(?: [\w+/=.~:*-]+)?", rf"\1{MASK}"),
    # `Duplicate field 'aa'` names a field; written with brackets it survives the quotes' rule.
    _rule("field", r"\b([Ff]ield)[ =](['\"])([\w.@-]{1,200})\2", r"\1 [\3]"),
    # From the first quote to the last, or to the end where it was cut: a value may hold quotes too.
    _rule("'", r"(?<!\w)'(?:.*'(?!\w)|.*)", f"'{MASK}'"),
    _rule('"', r"\"(?:.*\"|.*)", f'"{MASK}"'),
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
    named = _NAMED.search(match.string[max(0, match.start() - 20) : match.start()])
    if named or _PLAIN.fullmatch(match[1]) or match.string[match.end() : match.end() + 1] == "[":
        return match[0]
    # `[articles-v1][0]`: a shard. The second bracket follows the first.
    return match[0] if match.string.endswith("]", 0, match.start()) else f"[{MASK}]"


@lru_cache(maxsize=256)  # a reason is asked for twice: for `error` and for `error_detail`
def redact(text: str) -> str:
    """The text without values and secrets, at most 2 KB. Give each reason of a chain apart: rules run to its end."""
    text = " ".join(text[:_LONGEST_READ].split())
    lower = text.lower()
    for words, pattern, replacement in _RULES:
        if any(word in lower for word in words):
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
    text = (error if isinstance(error, str) else summary(error))[:1000]
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return hashlib.sha256(f"{reason}\n{text}".encode("utf-8", "replace")).hexdigest()[:16]
