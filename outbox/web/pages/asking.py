"""Reads what a page was asked for: filters from the address, the actor and the reason from a form. Shows nothing."""

from __future__ import annotations

import getpass
from typing import Annotated, Any
from urllib.parse import quote, unquote
from uuid import UUID

from fastapi import Depends
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outbox.ops import inputs as read
from outbox.policy.audit import Actor, Source
from outbox.policy.filter import AuditFilter, EventFilter
from outbox.web.auth.roles import Person
from outbox.web.problems import Refused
from outbox.web.services import Services

EVENT_FIELDS = tuple(EventFilter.__dataclass_fields__)
AUDIT_FIELDS = tuple(AuditFilter.__dataclass_fields__)
_NAME_COOKIE = "outbox_by"


def services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def person(request: Request) -> Person:
    found: Person = request.state.person
    return found


def raw_filter(values: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The filter's words from a query string or a form, each as it was written."""
    raw: dict[str, Any] = {}
    for name in names:
        given = [each for each in values.getlist(name) if each != ""]
        if given:
            raw[name] = given if name == "ids" else given[-1]
    return raw


def event_filter(values: Any) -> EventFilter:
    raw = raw_filter(values, EVENT_FIELDS)
    if "ids" in raw:
        raw["ids"] = " ".join(raw["ids"])
    return read.event_filter(raw)


def audit_filter(values: Any) -> AuditFilter:
    return read.audit_filter(raw_filter(values, AUDIT_FIELDS))


def number(values: Any, name: str, default: int, least: int, most: int) -> int:
    """A page's number is clamped, not refused: an old bookmark should still show something."""
    text = str(values.get(name) or "")
    return max(least, min(int(text), most)) if text.isdecimal() and len(text) < 10 else default


def event_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Refused(404, "An event's id is a uuid; this is none.") from None


def actor(request: Request, said: str | None) -> Actor:
    """Who acts on a page: the token's name, or on loopback the name that the person gives."""
    who = person(request)
    name = said if who.by_token is False else None
    return read.actor(who.acting(name) if who.by_token else (said or ""), Source.CONSOLE, str(who.role))


def said_by(request: Request) -> str:
    """The name that a person gave last time on this browser, or the account that runs the console."""
    if kept := request.cookies.get(_NAME_COOKIE):
        return unquote(kept)[:120]
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def go(request: Request, to: str, said: str = "", by: str | None = None) -> Response:
    """After an act: see other. The name is kept for the next form."""
    glue = "&" if "?" in to else "?"
    answer = RedirectResponse(f"{to}{glue}said={said}" if said else to, 303)
    if by and not person(request).by_token:
        answer.set_cookie(_NAME_COOKIE, quote(by[:120]), max_age=31_536_000, httponly=True, samesite="strict")
    return answer


async def _form(request: Request) -> FormData:
    return await request.form()


Sent = Annotated[FormData, Depends(_form)]
