"""Owns the parts that a load is made of: tables, what the view says of them, what is attached, who changes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from labs.ledger import Ledger
from tests.nemesis import attached, joined, linked, routed
from tests.nemesis.ids import Ids
from tests.nemesis.joined import MOST_SECONDS_APART, Change, Pairs

ID: Mapping[str, Any] = {"id_column": "id"}
DRAFTS = 120
# Single transactions with payloads, from some moment on with refreshes: the load does them (tests/nemesis/load.py).
DRAFT_TABLES: LiteralString = """
create table nemesis_drafts (id ID primary key, document json not null, version bigint not null);
"""
DRAFT_VIEW: LiteralString = "select 'draft', d.id, d.document, null from nemesis_drafts d"


@dataclass(frozen=True, slots=True)
class LoadPart:
    """`share` of all acts in a fixed run; `events` of an act, as a rule. `subjects`: letter and number of the ids that
    documents may have, where only the database notes their events."""

    kinds: tuple[str, ...]
    tables: LiteralString
    view: LiteralString
    share: float
    events: int
    changes: tuple[Mapping[Change, int], Mapping[Change, int]] = ({}, {})
    subject: Callable[[random.Random], str] = joined.name
    attached: Sequence[tuple[str, str, Mapping[str, Any]]] = ()  # table, kind, way
    subjects: tuple[str, int] = ("", 0)
    apart: float = MOST_SECONDS_APART

    def pairs(self, ledger: Ledger, ids: Ids) -> Pairs:
        first, second = self.changes
        asks = not self.attached
        return Pairs(ledger, self.kinds[0], self.subject, first, second, asks=asks, apart=self.apart, ids=ids)

    def documents(self, ids: Ids) -> set[str]:
        letter, many = self.subjects
        return {f"{kind}:{ids.typed(f'{letter}{n}')}" for kind in self.kinds for n in range(many)}


PARTS: Mapping[str, LoadPart] = {
    "joined": LoadPart(
        ("joined",), joined.TABLES, joined.VIEW, joined.SHARE_OF_ACTS, joined.EVENTS, (joined.FIRST, joined.SECOND)
    ),
    "routed": LoadPart(
        *(("order",), routed.TABLES, routed.VIEW, routed.SHARE_OF_ACTS, routed.EVENTS),
        *((routed.FIRST, routed.SECOND), routed.name),
    ),
    "linked": LoadPart(
        *(("book",), linked.TABLES, linked.VIEW, linked.SHARE_OF_ACTS, linked.EVENTS),
        *((linked.FIRST, linked.SECOND), linked.name, [(table, "book", way) for table, way in linked.ATTACHED]),
        *(("b", linked.BOOKS), linked.MOST_SECONDS_APART),
    ),
    "tickets": LoadPart(
        ("ticket",),
        attached.TICKET_TABLES,
        attached.TICKET_VIEW,
        0.02,
        6,
        attached.TICKET_CHANGES,
        attached.one_of("g", 4, attached.TEAMS),
        [
            ("nemesis_tickets", "ticket", ID),
            ("nemesis_teams", "ticket", {"via": "select id from nemesis_tickets where team_id = changed.id"}),
        ],
        ("k", attached.TICKETS),
        linked.MOST_SECONDS_APART,
    ),
    "carts": LoadPart(
        ("cart",),
        attached.CART_TABLES,
        attached.CART_VIEW,
        0.06,
        3,
        attached.CART_CHANGES,
        attached.one_of("q", 12, attached.CARTS),
        [("nemesis_carts", "cart", ID), ("nemesis_cart_items", "cart", {"id_column": "cart_id"})],
        ("q", attached.CARTS),
    ),
    "parcels": LoadPart(
        ("parcel",),
        attached.PARCEL_TABLES,
        attached.PARCEL_VIEW,
        0.06,
        2,
        attached.PARCEL_CHANGES,
        attached.one_of("r", 12, attached.PARCELS // 2),
        [("nemesis_parcels", "parcel", ID)],
        ("r", attached.PARCELS),
    ),
    "goods": LoadPart(
        ("good", "offer"),
        attached.GOOD_TABLES,
        attached.GOOD_VIEW,
        0.06,
        3,
        attached.GOOD_CHANGES,
        attached.one_of("w", 12, attached.GOODS),
        [("nemesis_goods", "good", ID), ("nemesis_goods", "offer", {**ID, "columns": ("title", "price")})],
        ("w", attached.GOODS),
    ),
    "drafts": LoadPart(("draft",), DRAFT_TABLES, DRAFT_VIEW, 0.1, 1),
}


def view(parts: Iterable[str]) -> LiteralString:
    return "create view search_documents (entity_type, entity_id, document, routing) as " + "\nunion all\n".join(
        [PARTS[name].view for name in parts]
    )
