"""The nemesis's plan follows from its seed alone, and a short run has everything in it."""

from itertools import islice

from tests.nemesis.schedule import DECKS, FAULTS, acts
from tests.nemesis.wire import Wire


def test_one_deck_has_every_act_of_its_lane() -> None:
    for lane, deck in DECKS.items():
        assert {act.kind for act in islice(acts(lane, 7), len(deck))} == set(deck)


def test_the_faults_of_the_issue_are_all_there() -> None:
    wanted = {"kill_9", "sigstop", "sigterm", "clock_shift", "pg_terminate", "pg_fast", "pg_immediate", "es_restart"}
    assert wanted | {"es_cut", "es_stall", "es_lose_reply", "es_429", "db_cut", "db_stall"} == set(FAULTS)


def line(id: str, version: int) -> bytes:
    return b'{"index":{"_id":"%b","version":%d,"version_type":"external_gte"}}\n{"a":1}\n' % (id.encode(), version)


def test_the_wire_counts_actions_also_where_a_read_cuts_them_in_two() -> None:
    request = b"PUT /nemesis/_bulk?x HTTP/1.1\r\ncontent-length: 9\r\n\r\n" + line("page:e1", 5) + line("page:e2", 6)
    for cut in range(1, len(request)):
        wire = Wire()
        for data in (request[:cut], request[cut:], request):
            wire.tap(1, data)
        assert sorted((*where, times) for (*where, _), times in wire.sent.items()) == [
            ("nemesis", "page:e1", 2),
            ("nemesis", "page:e2", 2),
        ]
        assert wire.again == 2
        assert wire.targets == {"nemesis": 2}


def test_a_delete_where_a_document_was_is_no_duplicate_of_its_write() -> None:
    wire, order = Wire(), line("order:o1", 5).replace(b'"version"', b'"routing":"t1","version"', 1)
    for action in (order, order.replace(b"t1", b"t2"), order.replace(b'"index"', b'"delete"')):
        wire.tap(1, b"PUT /nemesis/_bulk?x HTTP/1.1\r\n\r\n" + action)
    assert (wire.again, wire.documents) == (0, {"order:o1"})
