"""Pausing and resuming over HTTP."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from outbox.web.api.answering import answer
from outbox.web.api.asking import ONE_LINE, Act, At, Who, actor


class PauseBody(Act):
    entity_type: str | None = Field(
        None, min_length=1, max_length=200, pattern=ONE_LINE, description="Only this type; else everything."
    )


class ResumeBody(PauseBody):
    let_fail: str | None = Field(
        None, pattern=r"^[0-9a-f]{16}$", description="Instead: lift the brake on this fingerprint for an hour."
    )


def pause(body: PauseBody, at: At, who: Who) -> Response:
    """Stop claiming, everywhere, within two seconds; what is in flight is finished."""
    row = at.pauses.pause(actor(who, body), body.reason, body.entity_type)
    at.status.forget()
    return answer(row)


def resume(body: ResumeBody, at: At, who: Who) -> Response:
    """Go on claiming. `resumed` is false where nothing was paused under that name."""
    acting = actor(who, body)
    if body.let_fail:
        row = at.pauses.let_fail(body.let_fail, acting, body.reason)
        found = {"resumed": True, "scope": row["scope"]}
    else:
        scope = f"type:{body.entity_type}" if body.entity_type else "*"
        found = {"resumed": at.pauses.resume(acting, body.reason, body.entity_type) is not None, "scope": scope}
    at.status.forget()
    return answer(found)
