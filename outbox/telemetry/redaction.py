"""Makes text safe to log: secrets masked, control characters escaped, length limited. It writes nothing."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

from outbox.policy.redact import MASK, PASSWORD_IN_URL

LINE_BYTES: Final = 8192
# Several fields share a line: one long error must not push the others out.
FIELD_CHARACTERS: Final = 3000
_CUT: Final = "…"
# Linear in the text, because errors quote documents: nothing unlimited stands before a fixed word, and every secret has
# a longest length. `\w*password` took 2 s for 16 KB of letters.
_SECRETS: Final = (
    (PASSWORD_IN_URL, rf"\1:{MASK}@"),
    (
        re.compile(
            r"""((?:passw(?:or)?d|pwd|api[_-]?key|secret(?:_access_key)?|token)["']?\s{0,4}[=:]\s{0,4})"""
            r"""(?:'[^']{0,512}'?|"[^"]{0,512}"?|[^\s&,;"'}]+)""",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"""\b(AWS4-HMAC-SHA256)\s{1,4}[^"'}\n]{1,2048}"""), rf"\1 {MASK}"),
    (
        re.compile(
            r"""((?i:authorization)["']?\s{0,4}[=:]\s{0,4}["']?(?:(?i:ApiKey|Bearer|Basic|Token|Digest|Negotiate)\s{1,4})?)[^\s"',;}]+"""
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b((?i:ApiKey|Bearer)|Basic)(\s{1,4})[\w.~+/=-]{8,}"), rf"\1\2{MASK}"),
)

Redact = Callable[[str], str]


def redactor(secrets: Iterable[str] = (), names: Collection[str] = ()) -> Redact:
    """Masks whatever looks like a secret, and the given secrets of this process wherever they occur. One that is a part
    of a public name (password `articles`, index `articles-v2`) hides nothing by being masked in it: it is masked where
    it stands alone, or, where it is the whole name, in the place of a secret."""
    given = {secret for secret in secrets if len(secret) > 3}
    known = sorted(given | {password for secret in given for password in _passwords(secret)}, key=len, reverse=True)
    within = [secret for secret in known if any(secret in name for name in names)]
    anywhere = [secret for secret in known if secret not in within]
    alone = [re.compile(rf"(?<![\w.-]){re.escape(secret)}(?!\.?[\w-])") for secret in within if secret not in names]

    def redact(text: str) -> str:
        for secret in anywhere:
            text = text.replace(secret, MASK)
        for secret_alone in alone:
            text = secret_alone.sub(MASK, text)
        if ":" in text or "=" in text or " " in text:  # most values are a single word: saves 10 us each
            for pattern, masked in _SECRETS:
                text = pattern.sub(masked, text)
        return text

    return redact


def _passwords(address: str) -> Iterator[str]:
    """The password in an address, unless it occurs elsewhere in the address, such as `postgres`."""
    try:
        parts = urlsplit(address)
        password = parts.password or ""
    except ValueError:
        return
    for spelling in (password, unquote(password)):
        if len(spelling) > 5 and spelling not in (parts.username, parts.hostname, parts.path.strip("/")):
            yield spelling


def escape(text: str, keep: str = "") -> str:
    """Control, direction and lone surrogate characters made visible, so that a value cannot forge a log line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def escape_for_json(text: str) -> str:
    """As `escape`, except newlines and tabs, which JSON escapes itself."""
    return escape(text, "\n\t")


def shorten(text: str, limit: int = FIELD_CHARACTERS) -> str:
    return text if len(text) <= limit else text[: limit - len(_CUT)] + _CUT
