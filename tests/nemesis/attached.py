"""Owns the loads of attached tables beside the books: nobody asks for a refresh, the triggers of `outbox attach` do.

Tickets live where the tenant of their team says, and leave with a team that is closed. Carts are deleted softly, one by
one and many at once. Parcels stand in a partitioned table. Goods are one table with two documents per row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, LiteralString

from tests.nemesis.joined import Change, Connection, doing, text


def one_of(letter: str, hot: int, many: int) -> Callable[[random.Random], str]:
    return lambda dice: f"{letter}{dice.randrange(hot) if dice.random() < 0.3 else dice.randrange(many)}"


# Tickets: B3 of the reviews, a place from a joined table with a fan-out

TICKETS, TEAMS = 200, 40
TICKET_TABLES: LiteralString = """
create table nemesis_teams (id ID primary key, name text not null, tenant text not null, closed boolean not null);
insert into nemesis_teams select nemesis_id('g', n), 'team ' || n, 'tenant ' || n % 12, false
  from generate_series(0, 39) n;
create table nemesis_tickets (id ID primary key, team_id ID not null, title text not null, revision bigint not null);
create index on nemesis_tickets (team_id);
"""
TICKET_VIEW: LiteralString = """
select 'ticket', k.id,
       json_build_object('title', k.title, 'kind', 'ticket', 'revision', k.revision, 'content', g.name), g.tenant
  from nemesis_tickets k join nemesis_teams g on g.id = k.team_id
 where not g.closed
"""
FREE_TICKET: LiteralString = "(select id from nemesis_tickets where id = %(ticket)s for update skip locked)"


def _team_values(team: str, dice: random.Random) -> dict[str, Any]:
    return {"tenant": f"tenant {dice.randrange(12)}", "ticket": f"k{dice.randrange(TICKETS)}"}


_to_team = partial(doing, values=_team_values)
_team = _to_team("update nemesis_teams set name = %(text)s where id = %(id)s")
_move_team = _to_team("update nemesis_teams set tenant = %(tenant)s where id = %(id)s")
_close = _to_team("update nemesis_teams set closed = not closed where id = %(id)s")
_file = _to_team(
    "insert into nemesis_tickets values (%(ticket)s, %(id)s, %(text)s, %(number)s) on conflict do nothing",
)
_hand_over = _to_team("update nemesis_tickets set team_id = %(id)s where id = " + FREE_TICKET)
_retitle = _to_team("update nemesis_tickets set title = %(text)s where id = " + FREE_TICKET)
_drop_ticket = _to_team("delete from nemesis_tickets where id = " + FREE_TICKET)
TICKET_CHANGES: tuple[dict[Change, int], dict[Change, int]] = (
    {_team: 3, _move_team: 5, _close: 3},
    {_file: 6, _hand_over: 5, _retitle: 3, _drop_ticket: 2},
)

# Carts: soft deletes, a timestamptz in the document, children

CARTS = 240
CART_TABLES: LiteralString = """
create table nemesis_carts (
    id ID primary key, title text not null, changed_at timestamptz not null, deleted_at timestamptz);
create table nemesis_cart_items (
    n bigint generated always as identity primary key, cart_id ID not null, item text not null);
create index on nemesis_cart_items (cart_id);
"""
CART_VIEW: LiteralString = """
select 'cart', q.id, json_build_object(
           'title', q.title, 'kind', 'cart', 'content', q.changed_at,
           'notes', (select coalesce(json_agg(i.item order by i.n), '[]') from nemesis_cart_items i
                      where i.cart_id = q.id)),
       null
  from nemesis_carts q
 where q.deleted_at is null
"""


_keep_cart = doing(
    "insert into nemesis_carts values (%(id)s, %(text)s, clock_timestamp(), null) on conflict (id) do update"
    " set title = excluded.title, changed_at = excluded.changed_at, deleted_at = null",
)
_hide = doing("update nemesis_carts set deleted_at = clock_timestamp() where id = %(id)s")
_remove_cart = doing("delete from nemesis_carts where id = %(id)s")
_add_item = doing("insert into nemesis_cart_items (cart_id, item) values (%(id)s, %(text)s)")
_remove_item = doing(
    "delete from nemesis_cart_items where n ="
    " (select n from nemesis_cart_items where cart_id = %(id)s order by n limit 1 for update skip locked)",
)


def hide_many(connection: Connection, cart: str, dice: random.Random) -> Sequence[str]:
    """A quarter of all carts at once, as a cleaning job does it: the brake for lookups without a row may hold them."""
    connection.execute(
        "update nemesis_carts set deleted_at = clock_timestamp() where id in"
        " (select id from nemesis_carts where deleted_at is null order by md5(id::text || %(text)s) limit 60"
        " for update skip locked)",
        {"text": text(dice)},
    )
    return []


CART_CHANGES: tuple[dict[Change, int], dict[Change, int]] = (
    {_keep_cart: 30, _hide: 8, _remove_cart: 3, hide_many: 1},
    {_add_item: 5, _remove_item: 3},
)

# Parcels: a partitioned table, whose partitions come and go (tests/nemesis/schema_faults.py)

PARCELS, PARTITIONS = 200, 4
PARCEL_TABLES: LiteralString = """
create table nemesis_parcels (id ID primary key, title text not null, revision bigint not null) partition by hash (id);
create table nemesis_parcels_0 partition of nemesis_parcels for values with (modulus 4, remainder 0);
create table nemesis_parcels_1 partition of nemesis_parcels for values with (modulus 4, remainder 1);
create table nemesis_parcels_2 partition of nemesis_parcels for values with (modulus 4, remainder 2);
create table nemesis_parcels_3 partition of nemesis_parcels for values with (modulus 4, remainder 3);
"""
PARCEL_VIEW: LiteralString = """
select 'parcel', r.id, json_build_object('title', r.title, 'kind', 'parcel', 'revision', r.revision), null
  from nemesis_parcels r
"""


def _parcel_values(parcel: str, dice: random.Random) -> dict[str, Any]:
    new = f"r{dice.randrange(PARCELS // 2, PARCELS)}"
    return {"other": f"r{dice.randrange(PARCELS)}", "new": new}


_to_parcel = partial(doing, values=_parcel_values)
_send = _to_parcel(
    "insert into nemesis_parcels values (%(id)s, %(text)s, %(number)s) on conflict (id) do update"
    " set title = excluded.title, revision = excluded.revision",
)
_lose = _to_parcel("delete from nemesis_parcels where id = %(id)s")
_FREE_PARCEL: LiteralString = "(select id from nemesis_parcels where id = %(other)s for update skip locked)"
_stamp = _to_parcel("update nemesis_parcels set revision = %(number)s where id = " + _FREE_PARCEL)
_lose_other = _to_parcel("delete from nemesis_parcels where id = " + _FREE_PARCEL)
# To an id that no first transaction inserts, and so mostly to another partition.
_renumber = _to_parcel(
    "update nemesis_parcels set id = %(new)s where id = "
    + _FREE_PARCEL
    + " and not exists (select from nemesis_parcels r where r.id = %(new)s)",
)
PARCEL_CHANGES: tuple[dict[Change, int], dict[Change, int]] = (
    {_send: 8, _lose: 3},
    {_stamp: 5, _renumber: 3, _lose_other: 1},
)

# Goods: two entity types of one table

GOODS = 160
GOOD_TABLES: LiteralString = """
create table nemesis_goods (id ID primary key, title text not null, price int, stock int not null);
"""
GOOD_VIEW: LiteralString = """
select 'good', w.id, json_build_object('title', w.title, 'kind', 'good', 'revision', w.stock), null from nemesis_goods w
union all
select 'offer', w.id, json_build_object('title', w.title, 'kind', 'offer', 'revision', w.price), null
  from nemesis_goods w
 where w.price is not null
"""


def _good_values(good: str, dice: random.Random) -> dict[str, Any]:
    return {"price": dice.choice((None, dice.randrange(1000))), "other": f"w{dice.randrange(GOODS)}"}


_to_good = partial(doing, values=_good_values)
_keep_good = _to_good(
    "insert into nemesis_goods values (%(id)s, %(text)s, %(price)s, %(number)s) on conflict (id) do update"
    " set title = excluded.title, price = excluded.price",
)
_remove_good = _to_good("delete from nemesis_goods where id = %(id)s")
_FREE_GOOD: LiteralString = "(select id from nemesis_goods where id = %(other)s for update skip locked)"
_price = _to_good("update nemesis_goods set price = %(price)s where id = " + _FREE_GOOD)
_stock = _to_good("update nemesis_goods set stock = %(number)s where id = " + _FREE_GOOD)
GOOD_CHANGES: tuple[dict[Change, int], dict[Change, int]] = ({_keep_good: 8, _remove_good: 3}, {_price: 4, _stock: 4})
