"""The nemesis's plan follows from its seed alone, and a short run has everything in it."""

from itertools import islice

from tests.nemesis.schedule import DECKS, FAULTS, acts


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    for lane in DECKS:
        assert list(islice(acts(lane, 1), 200)) == list(islice(acts(lane, 1), 200))
    assert list(islice(acts("workers", 1), 50)) != list(islice(acts("workers", 2), 50))


def test_the_faults_of_the_issue_are_all_there() -> None:
    wanted = {"kill_9", "sigstop", "sigterm", "clock_shift", "pg_terminate", "pg_fast", "pg_immediate", "es_restart"}
    assert wanted | {"es_cut", "es_stall", "es_lose_reply", "es_429", "db_cut", "db_stall"} == set(FAULTS)
