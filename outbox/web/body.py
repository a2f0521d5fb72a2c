"""Reads a request's body within limits of size and time, and refuses a content type that the door does not speak."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

from outbox.web.problems import Refused

MOST_BYTES: Final = 262_144  # 500 ids with a filter are 20 KB
MOST_DROPPED: Final = 8_388_608
MOST_SECONDS: Final = 10.0
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"


async def read(request: Request, accepted: str) -> bytes:
    """The body, kept in the request so that the framework reads it from there."""
    try:
        body = await asyncio.wait_for(_collect(request), MOST_SECONDS)
    except TimeoutError:
        raise Refused(408, f"The body did not arrive within {MOST_SECONDS:.0f} s.") from None
    except ClientDisconnect:
        raise Refused(400, "The client went away before its body was read.") from None
    if body:
        _check_type(request, accepted)
    request._body = body
    return body


async def _collect(request: Request) -> bytes:
    """What is too large is read to its end and dropped, within reason: a client that still sends hears no answer."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and (len(told) > 12 or int(told) > MOST_DROPPED):
        raise _too_large()
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= MOST_BYTES:
            parts.append(part)
        elif size > MOST_DROPPED:
            raise _too_large()
    if size > MOST_BYTES:
        raise _too_large()
    return b"".join(parts)


def _check_type(request: Request, accepted: str) -> None:
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != accepted:
        raise Refused(415, f"Send {accepted}, not {said[:80] or 'a body without a content type'}.")


def _too_large() -> Refused:
    return Refused(413, f"The body is larger than {MOST_BYTES // 1024} KB.", headers={"connection": "close"})
