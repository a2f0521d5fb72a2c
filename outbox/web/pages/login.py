"""Logging in with a token, and out. The token is compared, turned into a cookie, and kept nowhere."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outbox.web import routing
from outbox.web.auth import COOKIE, LIFETIME_SECONDS, AccessGate
from outbox.web.routing import ANYONE, HOME, Endpoint
from outbox.web.templating import render


def login_page(request: Request) -> Response:
    gate: AccessGate = request.app.state.gate
    if gate.tokens is None:
        return RedirectResponse(HOME, 303)
    return render(request, "login.html", wrong=False, next=_inside(request.query_params.get("next")))


def login(request: Request, sent: routing.Sent) -> Response:
    gate: AccessGate = request.app.state.gate
    entry = gate.holder(request, sent.text("token").strip(), login=True)
    wanted = _inside(sent.text("next"))
    if entry is None or gate.sessions is None:
        return render(request, "login.html", status_code=401, wrong=True, next=wanted)
    answer = RedirectResponse(wanted, 303)
    # The console itself speaks plain HTTP; a browser that came by HTTPS says so in Origin.
    secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
    cookie = gate.sessions.issue(entry)
    answer.set_cookie(COOKIE, cookie, LIFETIME_SECONDS, secure=secure, httponly=True, samesite="strict")
    return answer


def logout(request: Request) -> Response:
    gate: AccessGate = request.app.state.gate
    if gate.sessions is not None:
        gate.sessions.end(request.cookies.get(COOKIE, ""))
    answer = RedirectResponse(f"{HOME}/login", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _inside(path: str | None) -> str:
    """Only a page of ours: `//elsewhere` and `https://elsewhere` would lead a person away."""
    plain = (path or "").partition("\\")[0]
    return plain if plain.startswith("/ops/") else HOME


PAGES: Final = (
    Endpoint("GET", f"{HOME}/login", login_page, ANYONE),
    Endpoint("POST", f"{HOME}/login", login, ANYONE),
    Endpoint("POST", f"{HOME}/logout", logout, ANYONE),
)
