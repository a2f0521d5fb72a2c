"""The text that benchmarks index is like text: were it not, Elasticsearch's share of the work would be a wish."""

from collections import Counter
from statistics import mean

from bench.prose import BYTES, prose


def test_it_is_the_same_text_every_time() -> None:
    first = prose()
    prose.cache_clear()
    assert prose() == first
    assert len(first.encode()) == BYTES


def test_few_words_are_frequent_and_most_are_seldom() -> None:
    words = Counter(prose().split())
    counts = [count for _, count in words.most_common()]
    assert len(counts) > 15_000
    assert 0.04 < counts[0] / words.total() < 0.10  # English: 6 % "the"
    assert 0.40 < sum(counts[:100]) / words.total() < 0.60  # English: half of all text
    assert 4.3 < mean(map(len, prose().split())) < 5.3  # English: 4.7 letters


def test_a_short_piece_has_mostly_words_of_its_own() -> None:
    piece = prose()[100_000:100_410].split()
    assert len(set(piece)) > 0.6 * len(piece)
