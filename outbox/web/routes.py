"""The route table: every door of the console, and who may go through it. What happens behind one is not here."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from outbox.web.api import answers, audit, events, failed, ops, pauses, replays, webhooks
from outbox.web.auth.roles import Role
from outbox.web.doors import Door
from outbox.web.pages import asking, docs, event, failures, login, overview, system, verify
from outbox.web.pages import audit as audit_pages
from outbox.web.pages import events as event_lists
from outbox.web.pages import pauses as pause_forms
from outbox.web.pages import replay as replay_pages
from outbox.web.pages import replays as replay_lists
from outbox.web.pages import webhooks as webhook_pages

API_PREFIX: Final = "/api/v1"
HOME: Final = "/ops/queue"
ANYONE, VIEWER, OPERATOR, ADMIN = Role.ANYONE, Role.VIEWER, Role.OPERATOR, Role.ADMIN


async def home(request: Request) -> Response:
    return RedirectResponse(HOME, 307)


async def healthz(request: Request) -> Response:
    """The process answers; it asks neither PostgreSQL nor Elasticsearch, and waits for no thread."""
    return PlainTextResponse("ok\n")


FILTER: Final = asking.EVENT_FIELDS
LISTED: Final = (*FILTER, "cursor")
AUDIT: Final = asking.AUDIT_FIELDS

PAGES: Final = (
    Door("GET", "/", home, ANYONE),
    Door("GET", "/healthz", healthz, ANYONE),
    Door("GET", f"{HOME}/login", login.login_page, ANYONE),
    Door("POST", f"{HOME}/login", login.login, ANYONE),
    Door("POST", f"{HOME}/logout", login.logout, ANYONE),
    Door("GET", HOME, overview.overview, VIEWER, takes=FILTER),
    Door("POST", f"{HOME}/pause", pause_forms.pause, OPERATOR),
    Door("POST", f"{HOME}/resume", pause_forms.resume, OPERATOR),
    Door("GET", f"{HOME}/failures", failures.failures_page, VIEWER, takes=FILTER),
    Door("GET", f"{HOME}/failures/list", event_lists.failed_list, VIEWER, takes=LISTED),
    Door("GET", f"{HOME}/events", event_lists.events_page, VIEWER, takes=(*LISTED, "status")),
    Door("GET", f"{HOME}/events/{{id}}", event.event_page, VIEWER, takes=("same",)),
    Door("POST", f"{HOME}/events/{{id}}/replay", replay_lists.replay_event, OPERATOR),
    Door("POST", f"{HOME}/events/{{id}}/discard", replay_lists.discard_event, OPERATOR),
    Door("POST", f"{HOME}/events/{{id}}/unmask", event.unmask, ADMIN, shows=True),
    Door("GET", f"{HOME}/replay", replay_pages.preview_page, VIEWER, takes=(*FILTER, "page")),
    Door("POST", f"{HOME}/replay/plan", replay_pages.plan_page, OPERATOR),
    Door("POST", f"{HOME}/replay/run", replay_pages.run, OPERATOR),
    Door("GET", f"{HOME}/replays", replay_lists.replays_page, VIEWER, takes=("cursor",)),
    Door("GET", f"{HOME}/replays/{{id}}", replay_lists.replay_page, VIEWER),
    Door("POST", f"{HOME}/replays/{{id}}/cancel", replay_lists.cancel, OPERATOR),
    Door("GET", f"{HOME}/audit", audit_pages.audit_page, VIEWER, takes=(*AUDIT, "cursor")),
    Door("POST", f"{HOME}/audit/export", audit_pages.export, VIEWER, takes=(*AUDIT, "format"), shows=True),
    Door("POST", f"{HOME}/audit/prune", audit_pages.prune, ADMIN, takes=AUDIT),
    Door("GET", "/ops/verify", verify.verify_page, VIEWER),
    Door("GET", f"{HOME}/webhooks", webhook_pages.webhooks_page, VIEWER, takes=("cursor",)),
    Door("POST", f"{HOME}/webhooks/{{id}}/redeliver", webhook_pages.redeliver, OPERATOR),
    Door("GET", f"{HOME}/system", system.system_page, VIEWER),
    Door("GET", f"{HOME}/runbook", system.runbook_page, VIEWER),
    Door("GET", f"{API_PREFIX}/docs", docs.docs_page, VIEWER),
    Door("GET", f"{API_PREFIX}/openapi.json", docs.openapi_document, VIEWER),
)


def _gives(model: type, status: int = 200, told: str = "", **more: Any) -> dict[str, Any]:
    """The answer's shape, for the document alone: answers are written by us, byte for byte."""
    return {"responses": {status: {"model": model, "description": told or "It is."}}, "status_code": status, **more}


_REPLAY_ANSWERS: Final = {
    "status_code": 202,
    "responses": {
        200: {"model": answers.Plan, "description": "A dry run: what would happen."},
        202: {"model": answers.Replay, "description": "The replay, on its way."},
        404: {"description": "Nothing matches."},
    },
}
_PROJECT_ANSWERS: Final = {
    "status_code": 202,
    "responses": {
        202: {"model": answers.Requested, "description": "The event, written."},
        404: {"description": "Nobody knows this entity."},
    },
}
_EXPORT_ANSWERS: Final = {
    "responses": {
        200: {
            "description": "The rows.",
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        }
    },
}

API: Final = (
    Door("GET", "/ops", ops.ops, VIEWER, _gives(answers.Ops)),
    Door("GET", "/stats", ops.stats, VIEWER, _gives(answers.Stats)),
    Door("GET", "/events", events.list_events, VIEWER, _gives(answers.EventList)),
    Door("GET", "/events/{id}", events.get_event, VIEWER, _gives(answers.EventDetail)),
    Door("POST", "/events", events.project, OPERATOR, _PROJECT_ANSWERS),
    Door("POST", "/events/{id}/replay", events.replay_event, OPERATOR, _gives(answers.Replay, 202, "On its way.")),
    Door("POST", "/events/{id}/discard", events.discard_event, OPERATOR, _gives(answers.Discarded)),
    Door("GET", "/failed", failed.list_failed, VIEWER, _gives(answers.EventList)),
    Door("GET", "/failed/groups", failed.groups, VIEWER, _gives(answers.GroupList)),
    Door("GET", "/failed/preview", failed.preview, VIEWER, _gives(answers.Preview)),
    Door("POST", "/failed/replay", failed.replay, OPERATOR, _REPLAY_ANSWERS),
    Door("POST", "/failed/flush", failed.flush, ADMIN, _gives(answers.Flushed)),
    Door("GET", "/replays", replays.list_replays, VIEWER, _gives(answers.ReplayList)),
    Door("GET", "/replays/{id}", replays.get_replay, VIEWER, _gives(answers.ReplayDetail)),
    Door("POST", "/replays/{id}/cancel", replays.cancel_replay, OPERATOR, _gives(answers.Replay)),
    Door("POST", "/pause", pauses.pause, OPERATOR, _gives(answers.Pause)),
    Door("POST", "/resume", pauses.resume, OPERATOR, _gives(answers.Resumed)),
    Door("GET", "/audit", audit.list_audit, VIEWER, _gives(answers.AuditList)),
    Door("GET", "/audit/export", audit.export, VIEWER, _EXPORT_ANSWERS, acts=True),
    Door("POST", "/audit/prune", audit.prune, ADMIN, _gives(answers.AuditPruned)),
    Door("GET", "/webhooks/deliveries", webhooks.list_deliveries, VIEWER, _gives(answers.DeliveryList)),
    Door("POST", "/webhooks/deliveries/{id}/redeliver", webhooks.redeliver, OPERATOR, _gives(answers.Redelivered, 202)),
)
