"""Failures in groups: what went wrong, how often, whether replays helped. Reads only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from outbox.ops.failures import Stats
from outbox.policy.filter import FAILURE_TYPES, given
from outbox.web.auth.roles import Role
from outbox.web.pages import asking
from outbox.web.show import charts
from outbox.web.templating import render

HOURS: Final = 48
# The commonest at the bottom, where columns can be compared.
SERIES: Final = ("document", "network", "timeout", "throttled", "config", "unknown")
MOST_GROUPS: Final = 100


def failures_page(request: Request) -> Response:
    at = asking.services(request)
    asked = asking.event_filter(request.query_params)
    reading, day = at.status(), at.day()
    groups = at.groups().value if asked.is_empty else at.failures.groups(asked, MOST_GROUPS)
    status = reading.value.status
    return render(
        request,
        "failures.html",
        groups=[(group, charts.spark(group.hours)) for group in groups],
        total=sum(group.count for group in groups),
        filter_words={name: request.query_params[name] for name in given(asked) if name in request.query_params},
        reasons=sorted(reason for reason in status.failed_by_reason if reason),
        types=sorted(row.entity_type for row in status.by_entity_type),
        day=day.value,
        stale=day.problem or reading.problem,
        chart=chart(day.value),
        series=[kind for kind in SERIES if day.value.failed.by_failure_type.get(kind)],
        table=table(day.value),
        kinds=[kind for kind in SERIES if kind in FAILURE_TYPES],
        may_act=asking.person(request).role.allows(Role.OPERATOR),
    )


def chart(stats: Stats) -> charts.Columns:
    """Every hour has its place, also those in which nothing failed."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    found = {hour.hour: hour.by_failure_type for hour in stats.hours}
    hours = [now - timedelta(hours=HOURS - 1 - n) for n in range(HOURS)]
    return charts.stacked([(f"{hour:%d %b %H:00}", found.get(hour, {})) for hour in hours], SERIES, label=_hour)


def _hour(label: str) -> str:
    return label[-5:]


def table(stats: Stats) -> list[tuple[str, list[int], int]]:
    """Entity type, its failures by kind, and their sum; the fullest first."""
    lines = [
        (name, [counts.get(kind, 0) for kind in SERIES], sum(counts.values())) for name, counts in stats.table.items()
    ]
    return sorted(lines, key=lambda line: -line[2])
