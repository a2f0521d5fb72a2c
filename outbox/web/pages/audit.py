"""The audit: filter, page, export, and prune after a dry run. Acts are handed to the services."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from outbox.ops import inputs as read
from outbox.ops.audit import AuditPruned
from outbox.policy.audit import AuditAction, Source
from outbox.policy.filter import described, given
from outbox.web.api import audit as api
from outbox.web.auth.roles import Role
from outbox.web.pages import asking
from outbox.web.problems import Refused
from outbox.web.templating import link, render

PAGE_ROWS: Final = 50


def audit_page(request: Request) -> Response:
    return _page(request)


def _page(request: Request, pruned: AuditPruned | None = None, days: str = "30", why: str = "") -> Response:
    asked = asking.audit_filter(request.query_params)
    found = api.page(asking.services(request), asked, PAGE_ROWS, request.query_params.get("cursor"))
    who = asking.person(request)
    return render(
        request,
        "audit.html",
        page=found,
        matched=min(found.total, read.MOST_COUNTED),
        capped=found.total > read.MOST_COUNTED,
        filter_words={name: request.query_params[name] for name in given(asked) if name in request.query_params},
        about=described(asked),
        actions=[str(action) for action in AuditAction],
        pruned=pruned,
        days=days,
        why=why,
        may_prune=who.role.allows(Role.ADMIN),
        said_by=asking.said_by(request),
    )


def export(request: Request) -> Response:
    """The rows of the filter in the address, as a file. A POST: who exports is written to the audit."""
    form = request.query_params.get("format", "csv")
    if form not in api.MEDIA_TYPES:
        raise Refused(422, f"The format must be one of {', '.join(api.MEDIA_TYPES)}.")
    who = asking.person(request)
    by = read.actor(who.name if who.by_token else asking.said_by(request) or who.name, Source.CONSOLE, str(who.role))
    return api.stream(request, asking.services(request), asking.audit_filter(request.query_params), form, by)


def prune(request: Request, form: asking.Sent) -> Response:
    """A dry run says how many; only the second button removes, and needs a reason."""
    by, days, why = (str(form.get(name) or "") for name in ("by", "older_than_days", "reason"))
    acting = asking.actor(request, by)
    dry = form.get("run") != "really"
    asked = asking.audit_filter(request.query_params)
    done = asking.services(request).audit.prune(asked, _days(days), acting, None if dry else why, dry_run=dry)
    if dry:
        return _page(request, done, days, why)
    words = asking.raw_filter(request.query_params, asking.AUDIT_FIELDS)
    return asking.go(request, link("/ops/queue/audit", **words), "pruned", by)


def _days(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise read.BadRequest([("older_than_days", "must be a number of days")]) from None
