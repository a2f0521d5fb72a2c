"""Text as people write it, for documents: a few words often, most words seldom, none of it anyone's.

At first the body was one sentence repeated, fifteen words that were in every document, and a hash. Elasticsearch took
half as long for that, and all shares of raw `_bulk` were taken of an index that nobody searches.
"""

import math
from functools import lru_cache
from random import Random
from typing import Final

import psycopg

BYTES: Final = 1 << 20
# Zipf's law over as many words as a grown-up knows; the often used ones are short, on average they have five letters.
_VOCABULARY: Final = 30_000
_LETTERS: Final = "eeeeeettttaaaaooooiiinnnssshhrrddllccuummwwffggyppbbvk"
_SEED: Final = 7
_STRIDE: Final = 7_919  # prime: a cut comes back only after as many documents as the text has letters


@lru_cache(maxsize=1)
def prose() -> str:
    """The same in every run, so that two runs can be compared."""
    chance = Random(_SEED)
    vocabulary = _words(chance)
    words = [vocabulary[int(_VOCABULARY ** chance.random()) - 1] for _ in range(BYTES // 3)]
    return " ".join(words)[:BYTES]


def _words(chance: Random) -> list[str]:
    """By rank, the most frequent first, each only once."""
    found: dict[str, None] = {}
    for rank in range(1, _VOCABULARY + 1):
        length = 2 + round(1.25 * math.log10(rank))
        word = "".join(chance.choices(_LETTERS, k=length))
        while word in found:
            word = "".join(chance.choices(_LETTERS, k=length))
        found[word] = None
    return list(found)


def install(url: str) -> None:
    """Into a table of the database where documents are made. As bytes, kept in slices: a cut of it reads one or two."""
    with psycopg.connect(url) as connection:
        connection.execute("create table bench_prose (words bytea not null)")
        connection.execute("alter table bench_prose alter column words set storage external")
        connection.execute("insert into bench_prose values (%s)", [prose().encode()])


def cut_sql(size: int) -> str:
    """SQL for `size` letters of it, from a place that depends on `g`; more than half of it is the same for all."""
    if size > BYTES // 2:
        return f"(select left(repeat(convert_from(words, 'UTF8'), {size // BYTES + 1}), {size}) from bench_prose)"
    start = f"1 + mod(g::bigint * {_STRIDE}, {BYTES - size})::int"
    return f"(select convert_from(substr(words, {start}, {size}), 'UTF8') from bench_prose)"
