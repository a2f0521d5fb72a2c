"""The producer's own record: the newest entries, equal documents, ids ordered by time."""

from labs.ledger import LedgerEntry, digest, newest
from labs.producing import SCENARIOS, Choice, time_ordered_id


def entry(entity: str, version: int, op: str = "upsert") -> LedgerEntry:
    return LedgerEntry(f"{entity}-{version}", "block", entity, op, version, "", 0.0)


def test_the_highest_version_is_the_newest_whatever_the_order_of_writing() -> None:
    assert newest([entry("a", 5), entry("a", 3), entry("b", 1)])["block:a"].version == 5


def test_a_digest_is_of_the_meaning_not_of_the_bytes() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_ids_are_version_7_and_in_order_of_time() -> None:
    ids = [time_ordered_id() for _ in range(50)]
    assert {id.version for id in ids} == {7}
    assert [id.int >> 80 for id in ids] == sorted(id.int >> 80 for id in ids)


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


def test_a_hot_key_gets_most_of_the_updates() -> None:
    choice = Choice("hot-key", 1)
    entities = [choice.next()[1] for _ in range(500)]
    assert entities.count(entities[0]) > 400
