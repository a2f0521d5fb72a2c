"""Of several events of one document in a batch only the newest is sent; the older ones wait in case it is refused."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from outbox.policy.document import Address
from outbox.policy.event import REFRESH, Event


@dataclass(slots=True)
class Stack:
    """The events of one document, newest on top."""

    address: Address
    head: Event
    older: list[Event] = field(default_factory=list)  # newest last
    refused: int = 0  # so often a version that was drawn for it met a higher one

    def push(self, event: Event) -> None:
        if event.order >= self.head.order:
            self.older.append(self.head)
            self.head = event
        else:
            self.older.append(event)

    def alike(self) -> list[Event]:
        """Other refreshes of this document: they would read and send the same again."""
        return [event for event in self.older if event.op == REFRESH] if self.head.op == REFRESH else []

    def drop_head(self) -> bool:
        """The newest was refused for good, and so were those alike: the next older one takes its place. False = none
        is left."""
        if self.head.op == REFRESH:
            self.older = [event for event in self.older if event.op != REFRESH]
        if not self.older:
            return False
        self.older.sort(key=lambda e: e.order)
        self.head = self.older.pop()
        return True


def coalesce(addressed: Sequence[tuple[Address, Event]]) -> list[Stack]:
    """One stack a document, in the order in which the documents were first met."""
    if len({address for address, _ in addressed}) == len(addressed):
        return [Stack(address, event) for address, event in addressed]
    stacks: dict[Address, Stack] = {}
    for address, event in addressed:
        stack = stacks.get(address)
        if stack is None:
            stacks[address] = Stack(address, event)
        else:
            stack.push(event)
    return list(stacks.values())
