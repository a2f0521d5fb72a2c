"""The producer's own record: the newest entries, equal documents, ids ordered by time."""

from labs.ledger import LedgerEntry, digest, newest
from labs.producing import SCENARIOS, Choice


def entry(entity: str, version: int, op: str = "upsert") -> LedgerEntry:
    return LedgerEntry(f"{entity}-{version}", "block", entity, op, version, "", 0.0)


def test_the_highest_version_is_the_newest_whatever_the_order_of_writing() -> None:
    assert newest([entry("a", 5), entry("a", 3), entry("b", 1)])["block:a"].version == 5


def test_a_digest_is_of_the_meaning_not_of_the_bytes() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_the_same_seed_makes_the_same_changes() -> None:
    for scenario in SCENARIOS:
        one, other = Choice(scenario, 7), Choice(scenario, 7)
        assert [one.next() for _ in range(200)] == [other.next() for _ in range(200)]


def test_a_deleted_entity_is_never_touched_again() -> None:
    choice = Choice("delete-heavy", 1)
    gone = set()
    for _ in range(500):
        op, entity = choice.next()
        assert entity not in gone
        if op == "delete":
            gone.add(entity)
    assert gone
