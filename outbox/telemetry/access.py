"""Counts who was let into the console and who was refused. Decides nothing, and knows no name and no token."""

from prometheus_client import CollectorRegistry, Counter

from outbox.facts import AccessJudged, AccessVerdict, Fact


class AccessCounter:
    """Subscribe `handle`. One series per verdict, from the start."""

    def __init__(self, projection: str, registry: CollectorRegistry) -> None:
        text = "Logins to the console, and requests that were refused before anything was done"
        whole = Counter("outbox_console_access", text, ("projection", "verdict"), registry=registry)
        self._of = {verdict: whole.labels(projection, verdict) for verdict in AccessVerdict}

    def handle(self, fact: Fact) -> None:
        if isinstance(fact, AccessJudged):
            self._of[fact.verdict].inc()
