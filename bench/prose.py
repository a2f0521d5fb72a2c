"""Generated text for documents, with word frequencies as in natural text: a few words often, most words rarely.

A body of one repeated sentence takes Elasticsearch half as long to index, which would make all shares of raw `_bulk`
unrealistic.
"""

import math
from functools import lru_cache
from random import Random
from typing import Final

import psycopg

BYTES: Final = 1 << 20
# Zipf's law over as many words as an adult knows. Frequent words are short; the average is five letters.
_VOCABULARY: Final = 30_000
_LETTERS: Final = "eeeeeettttaaaaooooiiinnnssshhrrddllccuummwwffggyppbbvk"
_SEED: Final = 7
_STRIDE: Final = 7_919  # prime: a cut repeats only after as many documents as the text has letters


@lru_cache(maxsize=1)
def prose() -> str:
    """The same in every run, so that two runs can be compared."""
    chance = Random(_SEED)
    vocabulary = _words(chance)
    words = [vocabulary[int(_VOCABULARY ** chance.random()) - 1] for _ in range(BYTES // 3)]
    return " ".join(words)[:BYTES]


def _words(chance: Random) -> list[str]:
    """By rank, most frequent first, each only once."""
    found: dict[str, None] = {}
    for rank in range(1, _VOCABULARY + 1):
        length = 2 + round(1.25 * math.log10(rank))
        word = "".join(chance.choices(_LETTERS, k=length))
        while word in found:
            word = "".join(chance.choices(_LETTERS, k=length))
        found[word] = None
    return list(found)


def install(url: str) -> None:
    """Into a table of the database that makes the documents. As uncompressed bytes, so that a cut reads one or two
    chunks."""
    with psycopg.connect(url) as connection:
        connection.execute("create table bench_prose (words bytea not null)")
        connection.execute("alter table bench_prose alter column words set storage external")
        connection.execute("insert into bench_prose values (%s)", [prose().encode()])


def cut_sql(size: int) -> str:
    """SQL for `size` letters of it, from an offset that depends on `g`."""
    if size > BYTES // 2:
        return f"(select left(repeat(convert_from(words, 'UTF8'), {size // BYTES + 1}), {size}) from bench_prose)"
    start = f"1 + mod(g::bigint * {_STRIDE}, {BYTES - size})::int"
    return f"(select convert_from(substr(words, {start}, {size}), 'UTF8') from bench_prose)"
