"""Owns what may be stored, logged or shown: values and secrets out of errors, passwords out of addresses, named fields
out of payloads. It does not classify.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from outbox.policy.lossless import Members, compact, read_any_depth

MASK: Final = "***"

LONGEST_ERROR_BYTES: Final = 2048
LONGEST_DETAIL_BYTES: Final = 16_384
# Longer texts quote a value at length. The rules are quadratic at worst: 5 ms for this much hostile text, 60 s for ten
# times as much before each of them had a bound.
_LONGEST_READ: Final = 4096
_DEEPEST_CAUSE: Final = 8


# Greedy up to the last @ of the word: a password with an unescaped @, : or / must not survive in part. The bounds keep
# hostile text linear; an IAM token that serves as a password has 1 to 2 KB.
PASSWORD_IN_URL: Final = re.compile(r"(://[^\s:@]{0,256}):\S{0,4096}@")


class _Rule(NamedTuple):
    """Asked only where one of its words is in the text, in any case: 30 us per text instead of 180."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str


def _rule(words: str, pattern: str, replacement: str) -> _Rule:
    return _Rule(tuple(words.split("|")), re.compile(pattern, re.DOTALL), replacement)


# A value may hold anything, so its end is known only by what the server wrote behind it, up to the end of the text:
# where that is not found, all of the rest goes. (Found by fuzzing: a value that held `at [Source:`, or a long one that
# was cut, lost its closing bracket and got out.)
_RULES: Final = (
    # Around a whole reason, so no value: what is inside is read like any other reason.
    _rule("invalid, cause [", r"(invalid, cause) \[(.*)\]\Z", r"\1: \2"),
    # A value stands at the end of these.
    _rule("preview of", r"(Preview of (?:field's value|invalid vector): ).*", rf"\1{MASK}"),
    _rule("for input string", r"(For input string: ).*", rf"\1{MASK}"),
    _rule("invalid format", r"(Invalid format: ).*", rf"\1{MASK}"),
    _rule("unparseable", r"(Unparseable date:? )['\"].*", rf"\1[{MASK}]"),
    # A value stands before a known end.
    _rule("date field", r"(date field )\[(?:.*\](?= with format \[[^\[\]]*\]\Z)|.*)", rf"\1[{MASK}]"),
    _rule("symbol|geohash", r"((?:symbol|geohash) )\[.*", rf"\1[{MASK}]"),
    _rule(
        "value [|name|whitespace:",
        r"((?:[Vv]alue|name:?|whitespace:) )"
        r"\[(?:.*\](?= (?:as|is|in|of|for)\b[^\[\]'\"]*(?:\[[^\[\]]*\][^\[\]'\"]*){0,3}\Z)|.*)",
        rf"\1[{MASK}]",
    ),
    _rule("numeric value", r"(Numeric value )\((?:.*?\)|.*)", rf"\1[{MASK}]"),
    _rule("immense term", r"(first immense term is: )(?:'.*?'|'.*)", rf"\1[{MASK}]"),
    _rule("text", r"(Text )'(?:.*'(?= could not be parsed[^'\"\[\]]*\Z)|.*)", rf"\1[{MASK}]"),
    _rule("token", r"(token )'(?:.*'(?=: was expecting \([^()'\"]*\)\Z)|.*)", rf"\1[{MASK}]"),
    _rule("://", PASSWORD_IN_URL.pattern, rf"\1:{MASK}@"),
    _rule(
        "password|passwd|pwd|secret|api|token",
        r"(?i)(?<!\w)(\w{0,40}(?:password|passwd|pwd|secret(?:_access_key)?|api_?key|token)\s?[=:]\s?)"
        r"(?:'[^']*'?|\"[^\"]*\"?|[^\s&,;]+)",
        rf"\1{MASK}",
    ),
    _rule("apikey|basic|bearer", r"(?i)\b(ApiKey|Basic|Bearer)\s[\w+/=.~:-]{6,}", rf"\1 {MASK}"),
    _rule("aws4-hmac", r"(?i)(AWS4-HMAC-SHA256)\s.*", rf"\1 {MASK}"),
    _rule("authorization", r"(?i)(authorization\s?[=:]\s?)\S+(?: [\w+/=.~:*-]+)?", rf"\1{MASK}"),
    # `Duplicate field 'aa'` names a field; written with brackets it survives the quotes' rule.
    _rule("field", r"\b([Ff]ield)[ =](['\"])([\w.@-]{1,200})\2", r"\1 [\3]"),
)
# From the first quote to the last, or to the end where it was cut: a value may hold quotes too.
_QUOTED: Final = (
    _rule("'", r"(?<!\w)'(?:.*'(?!\w)|.*)", f"'{MASK}'"),
    _rule('"', r"\"(?:.*\"|.*)", f'"{MASK}"'),
)
# The parser quotes the source itself, and where it stood. Last of all: a value may hold these words too.
_SOURCE: Final = (_rule("at [", r" ?(?:\(start marker )?at \[(?:Source:|\*\*\*\]).*", ""),)
# Where a value may begin. A text that is too long to be read to its end is read up to here.
_QUOTING: Final = re.compile(
    r"Preview of|For input string|Invalid format|date field \[|(?:[Vv]alue|symbol|geohash|name:?|whitespace:) \["
    r"|Numeric value \(|immense term|['\"]"
)

# What stands in brackets is a name after these words, and a value after all others.
_NAMED: Final = re.compile(
    r"(?:fields?|types?|mapper|mapping for|object(?: mapping)?|within|introduction of|format|index|indices"
    r"|alias|aliases|template|patterns?|pipeline|settings?|parameter|request|privileges|any of the|limit of|documents"
    r"|limit|depth|exceeded"
    r"|version|provided|node|shards?|line|expected|or|to|than|by:|allowed|maximum|at most|larger|breaker|user|key id"
    r"|flag|length|action) ?$"
)
_PLAIN: Final = re.compile(
    r"\d+:\d+|true|false|[a-z]|_\w+|-?\d{1,6}|\d+/[\d.]+[kmgt]?b|(?:FORBIDDEN|TOO_MANY_REQUESTS|SERVICE_UNAVAILABLE)/.*"
    r"|(?:indices|cluster):[\w/*:]+|(?:action|cluster|index|indices|http|indexing_pressure)\.[\w.]+"
    r"|(?:VALUE|START|END|FIELD)_[A-Z_]+|[a-z_]+_exception"
)
_QUOTE: Final = re.compile(r"(?<!\w)'|\"")
_OPENING: Final = re.compile(r"\[")
# A pair, and one within it: [indices:data/write/bulk[s]]
_PAIR: Final = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")
_ODD: Final = re.compile(r"\[[^\]]*(?:\[|\Z)|\][^\[]*\]")  # pairs within pairs, or half a pair


def _delimited(text: str) -> str:
    """Quotes and brackets. Whichever opens first holds the value, and may hold the other: so it is masked first."""
    quote = _QUOTE.search(text)
    bracket = next(
        (pair.start() for pair in _OPENING.finditer(text) if not _is_name(_PAIR.match(text, pair.start()))), -1
    )
    if quote is not None and not 0 <= bracket < quote.start():
        return _bracketed(_ruled(text, _QUOTED))
    return _ruled(_bracketed(text), _QUOTED)


def _bracketed(text: str) -> str:
    """Values in brackets masked, names kept. Odd brackets are a value's own: then all goes, up to the last one."""
    place = 0
    while (start := text.find("[", place)) >= 0:
        pair = _PAIR.match(text, start)
        if pair is not None and _is_name(pair):
            place = pair.end()
        elif pair is None or _ODD.search(text, start):
            end = text.rfind("]") + 1
            return f"{text[:start]}[{MASK}]{text[end:] if end > start else ''}"
        else:
            text, place = f"{text[:start]}[{MASK}]{text[pair.end() :]}", start + len(MASK) + 2
    return text


def _is_name(pair: re.Match[str] | None) -> bool:
    """After a word that names something, plain by itself, or a shard: `[articles-v1][0]`."""
    if pair is None:
        return False
    text = pair.string
    named = _NAMED.search(text[max(0, pair.start() - 20) : pair.start()])
    beside = text[pair.end() : pair.end() + 1] == "[" or text.endswith("]", 0, pair.start())
    return bool(named or pair[1] == MASK or _PLAIN.fullmatch(pair[1]) or beside)


@lru_cache(maxsize=256)  # a reason is asked for twice: for `error` and for `error_detail`
def redact(text: str) -> str:
    """The text without values and secrets, at most 2 KB. Give each reason of a chain apart: rules run to its end."""
    if len(text) > _LONGEST_READ:
        text = _beginning(text[:_LONGEST_READ])
    text = " ".join(text.split())
    masked = _delimited(_ruled(text, _RULES))
    return cut(_ruled(masked, _SOURCE) if "at [Source:" in text else masked, LONGEST_ERROR_BYTES)


def _ruled(text: str, rules: tuple[_Rule, ...]) -> str:
    lower = text.lower()
    for words, pattern, replacement in rules:
        if any(word in lower for word in words):
            text = pattern.sub(replacement, text)
    return text


def _beginning(text: str) -> str:
    """What stands before the first value: without the text's end nobody can say where that one ends."""
    quoting = _QUOTING.search(text)
    return text if quoting is None else text[: quoting.end()] + MASK


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
    chain = [": ".join(part for part in _type_and_reason(cause) if part) for cause in causes(error)]
    return cut(", caused by ".join(filter(None, chain)) or "no reason given", LONGEST_ERROR_BYTES)


def _type_and_reason(cause: Mapping[str, Any]) -> tuple[str, str]:
    reason = cause.get("reason")
    return cut(str(cause.get("type") or ""), 200), redact(str(reason)) if reason else ""


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


# Addresses

# A text that is one address as a whole may hold a password with blanks in it, of any length.
_WHOLE = re.compile(r"^(\s*[a-z][a-z0-9+.-]{0,30}://[^:@]*):.*@", re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(r"([?&]\w*(?:password|passwd|pwd)=)[^\s&]*", re.IGNORECASE)
# libpq's keyword form: quoted, or up to a blank that no backslash escapes; an & belongs to the password.
_KEYWORD = re.compile(
    r"(?<![?&\w])(\w*(?:password|passwd|pwd)\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|(?:\\.|[^\s\\])+)", re.IGNORECASE
)


def redact_dsn(text: str) -> str:
    """The text with every password of a URL, a `?password=` or a `password=` keyword masked."""
    text = _WHOLE.sub(rf"\1:{MASK}@", text, count=1)
    text = PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text)
    return _KEYWORD.sub(rf"\1{MASK}", _QUERY.sub(rf"\1{MASK}", text))


def redact_address(url: str) -> str:
    """Scheme and host only: the path or query of a webhook is often its secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return MASK
    place = f"{host}:{port}" if port else host
    return f"{parts.scheme}://{place}" + (f"/{MASK}" if parts.path.strip("/") or parts.query else "")


# Payloads


def masked(payload: bytes, fields: Collection[str]) -> bytes:
    """The payload with the values of these fields, at any depth, replaced; names are compared without case.

    Only shape and white space may change. Where nothing is to be masked the very bytes are returned. What is no JSON,
    or nested some hundred levels deep, is masked as a whole: nobody can say what it holds.
    """
    if not fields:
        return payload
    hidden = frozenset(field.casefold() for field in fields)
    try:
        return compact(_hidden(read_any_depth(payload), hidden)).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return json.dumps(MASK).encode()


def _hidden(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, Members):
        return Members((name, MASK if name.casefold() in names else _hidden(each, names)) for name, each in value)
    if isinstance(value, list):
        return [_hidden(each, names) for each in value]
    return value
