"""The view's documents for records. Adds what the table of events cannot know: types whose records carry payloads."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from outbox.policy.event import Event
from outbox.ports import Document, DocumentSource


@dataclass(frozen=True, slots=True)
class StreamDocuments:
    """`with_payload`: types of which this process has read payloads. What these have made is not gone because the view
    lacks it."""

    view: DocumentSource
    with_payload: Container[str]

    def draw(self) -> int:
        return self.view.draw()

    def keeps(self, entity_type: str) -> bool:
        return self.view.keeps(entity_type)

    def says_routing(self) -> bool:
        return self.view.says_routing()

    def keeps_versions(self, entity_type: str) -> bool:
        return self.view.keeps_versions(entity_type)

    def made_by_payloads(self, entity_type: str) -> bool:
        if self.view.made_by_payloads(entity_type):
            return True
        return entity_type in self.with_payload and not (
            self.view.keeps(entity_type) or self.view.keeps_versions(entity_type)
        )

    def load(self, events: Sequence[Event], *, whole: bool = False) -> Mapping[UUID, Document]:
        return self.view.load(events, whole=whole)
