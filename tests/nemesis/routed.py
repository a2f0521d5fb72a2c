"""Owns the routed part of the load: orders whose document lives where their customer's tenant says, and the customers.

Two transactions at a time, as in the joined part. The first changes a customer, and so the place or the presence of all
its orders; the second changes an order, or moves it to another customer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import LiteralString

from tests.nemesis.joined import Change, Connection, doing, text

KIND = "order"
ORDERS, HOT = 240, 12
CUSTOMERS, HOT_CUSTOMERS = 60, 3
TENANTS = 12
EVENTS = 6  # of a pair, as a rule: a customer has four orders
SHARE_OF_ACTS = 0.05  # a fifth of the events

TABLES: LiteralString = """
create table nemesis_customers (id ID primary key, name text not null, tenant text not null, banned boolean not null);
insert into nemesis_customers select nemesis_id('c', n), 'customer ' || n, 'tenant ' || n % 12, false
  from generate_series(0, 59) n;
create table nemesis_orders (id ID primary key, customer_id ID not null, title text not null, revision bigint not null);
create index on nemesis_orders (customer_id);
"""
VIEW: LiteralString = """
select 'order', o.id,
       json_build_object(
           'title', o.title, 'kind', 'order', 'revision', o.revision, 'content', c.name || ' of ' || c.tenant),
       c.tenant
  from nemesis_orders o join nemesis_customers c on c.id = o.customer_id
 where not c.banned
"""

# Whoever changes a customer refreshes the orders that it finds, and finds none that is on its way there: none may be.
# The second transaction of a pair only tries: if two threads' second ones waited for first ones, they would for ever.
LOCK = "select pg_advisory_xact_lock(hashtextextended(%s, 7))"
TRY_TO_SHARE = "select pg_try_advisory_xact_lock_shared(hashtextextended(%s, 7))"
ORDERS_OF = "select id from nemesis_orders where customer_id = %s order by id"
KEEP_CUSTOMER = """
insert into nemesis_customers (id, name, tenant, banned) values (%(id)s, %(text)s, %(tenant)s, false)
on conflict (id) do update set name = excluded.name
"""
MOVE_CUSTOMER = "update nemesis_customers set tenant = %(tenant)s where id = %(id)s"
BAN_OR_NOT = "update nemesis_customers set banned = not banned where id = %(id)s"
REMOVE_CUSTOMER = "delete from nemesis_customers where id = %(id)s"
KEEP = """
insert into nemesis_orders (id, customer_id, title, revision) values (%(id)s, %(customer)s, %(text)s, %(number)s)
on conflict (id) do update set customer_id = excluded.customer_id, title = excluded.title, revision = excluded.revision
"""
CHANGE: LiteralString = "update nemesis_orders set title = %(text)s, revision = %(number)s where id = %(id)s"
REMOVE: LiteralString = "delete from nemesis_orders where id = %(id)s"


def name(dice: random.Random) -> str:
    return f"o{dice.randrange(HOT) if dice.random() < 0.35 else dice.randrange(ORDERS)}"


def _customer(dice: random.Random) -> str:
    return f"c{dice.randrange(HOT_CUSTOMERS) if dice.random() < 0.2 else dice.randrange(CUSTOMERS)}"


def _with_customer(statement: LiteralString) -> Change:
    def change(connection: Connection, order: str, dice: random.Random) -> Sequence[str]:
        """All of its orders, read by a statement of its own after the lock."""
        customer = _customer(dice)
        connection.execute(LOCK, [customer])
        tenant = f"tenant {dice.randrange(TENANTS)}"
        connection.execute(statement, {"id": customer, "tenant": tenant, "text": text(dice)})
        return [str(id) for (id,) in connection.execute(ORDERS_OF, [customer]).fetchall()]

    return change


keep_customer, move_customer, ban_or_not, remove_customer = map(
    _with_customer, (KEEP_CUSTOMER, MOVE_CUSTOMER, BAN_OR_NOT, REMOVE_CUSTOMER)
)


def keep(connection: Connection, order: str, dice: random.Random) -> Sequence[str]:
    """A new one, or one that moves to another customer; only changed where somebody is at that customer."""
    customer = _customer(dice)
    free = connection.execute(TRY_TO_SHARE, [customer]).fetchone()
    values = {"id": order, "customer": customer, "text": text(dice), "number": dice.randrange(1_000_000)}
    connection.execute(KEEP if free and free[0] else CHANGE, values)
    return [order]


change, remove = doing(CHANGE), doing(REMOVE)
FIRST: dict[Change, int] = {keep_customer: 5, move_customer: 6, ban_or_not: 3, remove_customer: 1}
SECOND: dict[Change, int] = {keep: 8, change: 3, remove: 2}
