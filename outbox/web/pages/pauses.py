"""Pausing and resuming: the forms of the first page, and the API."""

from __future__ import annotations

from typing import Final

from pydantic import Field
from starlette.responses import Response

from outbox.policy import inputs as read
from outbox.web import answers, routing
from outbox.web.answers import answer
from outbox.web.routing import HOME, ONE_LINE, OPERATOR, Act, At, Endpoint, Who, actor_of, gives


class PauseBody(Act):
    entity_type: str | None = Field(
        None, min_length=1, max_length=200, pattern=ONE_LINE, description="Only this type; else everything."
    )


class ResumeBody(PauseBody):
    let_fail: str | None = Field(
        None,
        pattern=r"^([0-9a-f]{16}|lookups_without_a_row(:.{1,512})?)$",
        description="Instead: lift the brake on this fingerprint for an hour.",
    )


def pause(body: PauseBody, at: At, who: Who) -> Response:
    """Stop claiming, everywhere, within two seconds; what is in flight is finished."""
    row = at.pauses.pause(actor_of(who, body), body.reason, body.entity_type)
    at.status.forget()
    return answer(row)


def resume(body: ResumeBody, at: At, who: Who) -> Response:
    """Resume claiming. `resumed` is false if nothing was paused under that name."""
    acting = actor_of(who, body)
    if body.let_fail:
        row = at.pauses.let_fail(body.let_fail, acting, body.reason)
        found = {"resumed": True, "scope": row["scope"]}
    else:
        scope = f"type:{body.entity_type}" if body.entity_type else "*"
        found = {"resumed": at.pauses.resume(acting, body.reason, body.entity_type) is not None, "scope": scope}
    at.status.forget()
    return answer(found)


def pause_form(sent: routing.Sent) -> Response:
    said = sent.text("entity_type").strip()
    sent.at.pauses.pause(sent.actor, sent.reason, read.line("entity_type", said, 200) if said else None)
    return sent.go(HOME, "paused")


def resume_form(sent: routing.Sent) -> Response:
    scope = sent.text("scope")
    kind = read.line("scope", scope.removeprefix("type:"), 200) if scope.startswith("type:") else None
    sent.at.pauses.resume(sent.actor, sent.reason, kind)
    return sent.go(HOME, "resumed")


PAGES: Final = (
    Endpoint("POST", f"{HOME}/pause", pause_form, OPERATOR),
    Endpoint("POST", f"{HOME}/resume", resume_form, OPERATOR),
)
API: Final = (
    Endpoint("POST", "/pause", pause, OPERATOR, gives(answers.Pause)),
    Endpoint("POST", "/resume", resume, OPERATOR, gives(answers.Resumed)),
)
