"""The probe under security, over a scripted server: a least-privilege key is enough, and nothing is ever created."""

import json

import pytest

from outbox.policy.outcome import WRITTEN, Failure, Reason
from outbox.ports import BulkAction
from tests.fixtures.scripted import Answer, Request, ScriptedServer, answer, scripted
from tests.fixtures.sinks import elastic_sink

ACTION = BulkAction("things", "a", 1, None, b"{}")
FINE = answer(200, b'{"errors":false,"items":[{"index":{"status":201}}]}')
DENIED = answer(403, b'{"error":{"type":"security_exception","reason":"action is unauthorized"}}')
DENIED_ITEM = answer(
    200, b'{"errors":true,"items":[{"index":{"status":403,"error":{"type":"security_exception","reason":"no"}}}]}'
)
NO_KEY = answer(401, b'{"error":{"type":"security_exception","reason":"missing authentication credentials"}}')
SEEN = answer(200, b'{"things":{"aliases":{},"settings":{}}}')
NO_SECURITY = answer(400, b'{"error":"no handler found for uri [/_security/user/_has_privileges] and method [POST]"}')


def rights(allowed: bool) -> bytes:
    return answer(200, json.dumps({"has_all_requested": allowed}).encode())


def key(metadata: bytes, privileges: bytes) -> object:
    def other(request: Request) -> Answer:
        return privileges if "_has_privileges" in request.path else metadata

    return other


def only_reads(server: ScriptedServer) -> bool:
    return all(request.method in ("GET", "HEAD") or "_has_privileges" in request.path for request in server.requests)


@pytest.mark.parametrize(
    ("metadata", "privileges", "reason", "remark"),
    [
        (SEEN, rights(True), None, "a key with all three rights"),
        (DENIED, rights(True), None, "a key that may write and not look"),
        (DENIED, rights(False), Reason.ES_AUTH, "a key that may do neither"),
        (DENIED, NO_SECURITY, Reason.ES_AUTH, "a proxy that forbids"),
        (NO_KEY, NO_KEY, Reason.ES_AUTH, "no key, or one that has expired"),
    ],
)
def test_what_a_key_may_do_decides(metadata: bytes, privileges: bytes, reason: Reason | None, remark: str) -> None:
    with scripted(lambda _: FINE, key(metadata, privileges)) as server, elastic_sink(server.url) as sink:  # type: ignore[arg-type]
        found = sink.probe("things")
        assert only_reads(server)
    assert (found.reason if found else None) == reason, remark


def test_a_key_that_may_read_and_not_write_stays_paused_until_it_may() -> None:
    allowed = [False]
    with (
        scripted(
            lambda _: FINE if allowed[0] else DENIED_ITEM,
            lambda request: rights(allowed[0]) if "_has_privileges" in request.path else SEEN,
        ) as server,
        elastic_sink(server.url) as sink,
    ):
        refused = sink.write([ACTION], 5.0).outcomes[0]
        assert isinstance(refused, Failure)
        assert refused.reason is Reason.ES_AUTH
        found = sink.probe("things")
        assert found is not None
        assert found.reason is Reason.ES_AUTH
        allowed[0] = True
        assert sink.probe("things") is None
        assert sink.write([ACTION], 5.0).outcomes[0] == WRITTEN
