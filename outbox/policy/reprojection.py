"""Which event projects an entity again when a person asks for it, and with which version. Pure."""

from dataclasses import dataclass

from outbox.policy.drift import Truth
from outbox.policy.event import DELETE, REFRESH, UPSERT
from outbox.policy.repair import needs_refresh


@dataclass(frozen=True, slots=True)
class Reprojection:
    """Without a text the projector looks up the document, or finds that the entity is gone."""

    entity_type: str
    entity_id: str
    op: str
    version: int | None  # None: a refresh, whose version is drawn when the view is read
    text: str | None
    routing: str | None


def reprojection(
    truth: Truth, known: tuple[int, str | None] | None, held: int | None, *, looked_up: bool, refreshed: bool
) -> Reprojection | None:
    """`known`: the entity's highest event version, and its routing. `held`: Elasticsearch's version. None: unknown.

    Where the view names no version it is a refresh. Else the version is the entity's newest (the source's, else its
    highest event's), or Elasticsearch's where that is higher: equal versions pass. A looked-up document is sent with
    the view's own version, so where Elasticsearch is ahead of it the text goes with the event.
    """
    event_version, event_routing = known or (None, None)
    own = truth.version if truth.version is not None else event_version
    if own is None and held is None and truth.text is None:
        return None
    key = truth.key
    if needs_refresh(truth, refreshed=refreshed):
        return Reprojection(key.entity_type, key.entity_id, REFRESH, None, None, event_routing)
    version = max(own or 0, held or 0)
    routing = truth.routing or event_routing
    if truth.text is None and not looked_up:
        return Reprojection(key.entity_type, key.entity_id, DELETE, version, None, routing)
    ahead = truth.version is not None and version > truth.version
    text = truth.text if ahead or not looked_up else None
    return Reprojection(key.entity_type, key.entity_id, UPSERT, version, text, routing)
