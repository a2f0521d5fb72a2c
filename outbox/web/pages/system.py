"""How this installation is set up: settings without secrets, versions, schema, health, and the runbook."""

from __future__ import annotations

import platform

from starlette.requests import Request
from starlette.responses import Response

from outbox.ports import Level
from outbox.web.pages import asking
from outbox.web.show.runbook import RUNBOOK
from outbox.web.templating import render

_ORDER = (Level.BAD, Level.WARN, Level.UNKNOWN, Level.OK)


def system_page(request: Request) -> Response:
    at = asking.services(request)
    reading = at.status()
    settings = request.app.state.settings
    return render(
        request,
        "system.html",
        reading=reading,
        status=reading.value.status,
        settings=[(name, told["value"], told["source"]) for name, told in settings.redacted().items()],
        python=platform.python_version(),
        findings=sorted(at.findings().value, key=lambda found: _ORDER.index(found.level)),
        tokens_file=settings.console.tokens_file is not None,
    )


def runbook_page(request: Request) -> Response:
    return render(request, "runbook.html", runbook=RUNBOOK)
