"""Owns the linked part of the load: books of authors of houses, attached over two hops. Nobody asks for a refresh.

Two transactions at a time, which overlap: the first renames an author or the author's house, the second makes or ends
a link to that author or from it to that house. Neither sees the other, so where the rename commits last only a fan-out
after its commit finds every book.
"""

from __future__ import annotations

import random
from typing import Any, LiteralString

from tests.nemesis.joined import Change, doing

KIND = "book"
BOOKS, AUTHORS, HOUSES = 160, 80, 40
EVENTS = 6  # of a pair, as a rule: a house has two authors, an author two books, and each rename is an event itself
SHARE_OF_ACTS = 0.02  # a thirteenth of the events
# So long that the first of two commits is often projected before the second: only then a rename finds no book.
MOST_SECONDS_APART = 0.6

TABLES: LiteralString = """
create table nemesis_houses (id ID primary key, name text not null);
create table nemesis_authors (id ID primary key, house_id ID not null, name text not null);
create table nemesis_books (id ID primary key, author_id ID not null, title text not null);
create index on nemesis_authors (house_id);
create index on nemesis_books (author_id);
insert into nemesis_houses select nemesis_id('h', n), 'house ' || n from generate_series(0, 39) n;
insert into nemesis_authors select nemesis_id('a', n), nemesis_id('h', n % 40), 'author ' || n
  from generate_series(0, 79) n;
"""
VIEW: LiteralString = """
select 'book', b.id,
       json_build_object('title', b.title, 'kind', 'book', 'content', a.name || ' of ' || h.name),
       null
  from nemesis_books b join nemesis_authors a on a.id = b.author_id join nemesis_houses h on h.id = a.house_id
"""

# As of the joined part: a second transaction waits for nobody.
FREE_AUTHOR: LiteralString = "(select id from nemesis_authors where id = %(id)s for update skip locked)"
FREE_BOOK: LiteralString = "(select id from nemesis_books where id = %(book)s for update skip locked)"
RENAME: LiteralString = "update nemesis_authors set name = %(text)s where id = %(id)s"
RENAME_HOUSE: LiteralString = "update nemesis_houses set name = %(text)s where id = %(house)s"
MOVE_AUTHOR: LiteralString = "update nemesis_authors set house_id = %(house)s where id = " + FREE_AUTHOR
MOVE_BOOK: LiteralString = "update nemesis_books set author_id = %(id)s where id = " + FREE_BOOK
REMOVE_BOOK: LiteralString = "delete from nemesis_books where id = " + FREE_BOOK
ADD_BOOK: LiteralString = """
insert into nemesis_books (id, author_id, title) values (%(book)s, %(id)s, %(text)s) on conflict do nothing
"""
# Table, column of the id or query of the ids.
ATTACHED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("nemesis_books", {"id_column": "id"}),
    ("nemesis_authors", {"via": "select id from nemesis_books where author_id = changed.id"}),
    (
        "nemesis_houses",
        {
            "via": "select b.id from nemesis_books b join nemesis_authors a on a.id = b.author_id"
            " where a.house_id = changed.id"
        },
    ),
)


def name(dice: random.Random) -> str:
    """An author; the house that is renamed beside it, or that it moves to, follows from it."""
    return f"a{dice.randrange(AUTHORS)}"


def _values(author: str, dice: random.Random) -> dict[str, Any]:
    return {"house": f"h{int(author[1:]) % HOUSES}", "book": f"b{dice.randrange(BOOKS)}"}


rename, rename_house, move_author, move_book, add_book, remove_book = (
    doing(statement, values=_values)
    for statement in (RENAME, RENAME_HOUSE, MOVE_AUTHOR, MOVE_BOOK, ADD_BOOK, REMOVE_BOOK)
)
FIRST: dict[Change, int] = {rename: 4, rename_house: 6}
SECOND: dict[Change, int] = {move_book: 5, move_author: 3, add_book: 3, remove_book: 2}
