"""What a broken server, proxy or wire may answer: never a raise, never a row failed, always within the deadline."""

import gzip
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.facts import BulkSent, Fact, Unclassified
from outbox.policy.outcome import WRITTEN, Failure, FailureClass, Reason
from outbox.ports import BulkAction, WriteReport
from outbox.sink.exchange import LARGEST_REPLY_BYTES
from tests.fixtures.scripted import PRODUCT, Answer, Request, answer, scripted, silent_server
from tests.fixtures.sinks import elastic_sink

DEADLINE = 2.0
FINE = b'{"errors":false,"items":[{"index":{"status":201}},{"index":{"status":200}},{"delete":{"status":200}}]}'
ACTIONS = [
    BulkAction("things", "a", 1, None, b"{}"),
    BulkAction("things", "b", 1, None, b"{}"),
    BulkAction("things", "c", 1, None, None),
]


def chunked(pieces: Iterator[bytes], headers: str = PRODUCT) -> Iterator[bytes]:
    yield f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n{headers}\r\n".encode()
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def drip(text: bytes) -> Iterator[bytes]:
    for letter in text:
        time.sleep(0.2)
        yield bytes([letter])


def bomb() -> bytes:
    """A good reply and 200 MB of blanks after it, which travel as 1 MB: whoever reads it whole believes it."""
    packed = gzip.compress(FINE + b" " * (200 * 1024 * 1024), compresslevel=1)
    return answer(200, packed, headers=PRODUCT + "content-encoding: gzip\r\n")


def items(*texts: str) -> bytes:
    return answer(200, b'{"errors":true,"items":[%b]}' % ",".join(texts).encode())


OK = '{"index":{"status":201}}'
GONE = '{"delete":{"status":404}}'
UNREADABLE: dict[str, Answer] = {
    "an HTML page with 200": answer(200, b"<html>maintenance</html>", kind="text/html"),
    "text that is not JSON": answer(200, b"hello"),
    "JSON cut in the middle": answer(200, FINE[:40]),
    "an empty body": answer(200),
    "a list": answer(200, b"[]"),
    "no items": answer(200, b'{"errors":false}'),
    "items that are no list": answer(200, b'{"items":{}}'),
    "one item too few": items(OK, OK),
    "one item too many": items(OK, OK, GONE, OK),
    "items in another order": items(GONE, OK, OK),
    "an item that is null": items(OK, "null", GONE),
    "bytes that are no text": answer(200, b"\xff\xfe\x00"),
    "a type nobody knows": answer(200, b"\x01\x02", kind="application/octet-stream"),
    "broken gzip": answer(200, b"not gzip", headers=PRODUCT + "content-encoding: gzip\r\n"),
    "502 from a proxy": answer(502, b"<html>bad gateway</html>", kind="text/html", headers=""),
    "503 from a proxy": answer(503, b"", headers=""),
    "504 from a proxy": answer(504, b"<html>timeout</html>", kind="text/html", headers=""),
    "500 without a type": answer(500, b"oops", kind="text/plain", headers=""),
}


def transient(report: WriteReport, *reasons: Reason) -> None:
    for outcome in report.outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.failure_class is FailureClass.TRANSIENT
        assert outcome.reason in reasons
        assert outcome.fingerprint


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_reply_that_does_not_say_what_became_of_the_documents_is_tried_again(what: str) -> None:
    facts: list[Fact] = []
    with scripted(lambda _: UNREADABLE[what]) as server, elastic_sink(server.url, facts.append) as sink:
        report = sink.write(ACTIONS, 10.0)
        assert len(server.bulks) == 1, "a reply that cannot be read is no reason to search for a culprit"
    transient(report, Reason.ES_5XX)
    assert all(isinstance(outcome, Failure) and outcome.whole for outcome in report.outcomes)
    assert report.unreachable is None, "the server answers a probe"
    assert {fact.result for fact in facts if isinstance(fact, BulkSent)} <= {"unknown", "refused"}


@pytest.mark.parametrize(
    ("said", "seconds"), [("120", 120.0), ("Mon, 16 Nov 2026 12:00:00 GMT", 0.0), ("soon", 0.0), ("9" * 30, 43_200.0)]
)
def test_a_server_or_proxy_that_asks_for_a_pause_is_heard(said: str, seconds: float) -> None:
    """As seconds: a date would be compared with the clock of this machine."""
    asking = answer(429, headers=f"{PRODUCT}retry-after: {said}\r\n")
    with scripted(lambda _: asking) as server, elastic_sink(server.url) as sink:
        report = sink.write(ACTIONS, 60.0)
    transient(report, Reason.ES_429)
    assert {outcome.retry_after_seconds for outcome in report.outcomes if isinstance(outcome, Failure)} == {seconds}


@pytest.mark.parametrize("what", ["a gzip bomb", "a reply without end"])
def test_a_reply_that_is_too_large_is_cut_off_by_its_size(what: str) -> None:
    """Long before the deadline. Both begin with what would be believed."""

    def reply(_: Request) -> Answer:
        return bomb() if what == "a gzip bomb" else chunked(itertools.chain([FINE], itertools.repeat(b" " * 65536)))

    with scripted(reply) as server, elastic_sink(server.url) as sink:
        report = sink.write(ACTIONS, 60.0)
        assert len(server.bulks) == 1
    transient(report, Reason.ES_5XX)
    for outcome in report.outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.whole
        assert f"larger than {LARGEST_REPLY_BYTES} bytes" in outcome.error
    assert report.unreachable is None, "the server answers a probe"


@pytest.mark.parametrize("what", ["dripping body", "dripping headers"])
def test_a_reply_without_end_ends_at_the_deadline(what: str) -> None:
    def reply(_: Request) -> Answer:
        text = b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100
        return chunked(drip(FINE)) if what == "dripping body" else drip(text)

    started = time.monotonic()
    with scripted(reply) as server, elastic_sink(server.url) as sink:
        report = sink.write(ACTIONS[:1], DEADLINE)
        took = time.monotonic() - started
    transient(report, Reason.TIMEOUT)
    assert took < DEADLINE + 5, "the reply goes on for twenty seconds and more"


def test_a_server_that_never_answers_is_down_and_nothing_is_split() -> None:
    with silent_server() as url, elastic_sink(url) as sink:
        report = sink.write(ACTIONS, 1.0)
    transient(report, Reason.TIMEOUT)
    assert report.unreachable is not None
    assert all(isinstance(outcome, Failure) and outcome.whole for outcome in report.outcomes)


def test_a_reset_while_the_server_still_answers_is_split_down_to_the_document_that_breaks_it() -> None:
    def reply(request: Request) -> Answer:
        lines = request.body.count(b"\n")
        if b'"_id":"b"' in request.body:
            return b""
        return items(*([OK] if lines == 2 else [GONE]))

    with scripted(reply) as server, elastic_sink(server.url) as sink:
        first, second, third = sink.write(ACTIONS, 5.0).outcomes
    assert first == WRITTEN
    assert isinstance(second, Failure)
    assert (second.reason, second.whole) == (Reason.CONNECT, False)
    assert not isinstance(third, Failure)


def test_a_truncated_reply_is_not_believed() -> None:
    def reply(_: Request) -> Answer:
        return iter([answer(200, FINE)[:-20]])

    with scripted(reply) as server, elastic_sink(server.url) as sink:
        transient(sink.write(ACTIONS, 5.0), Reason.ES_5XX)
        assert len(server.bulks) == 1


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (401, b'{"error":{"type":"security_exception","reason":"missing authentication credentials"}}', Reason.ES_AUTH),
        (403, b'{"error":{"type":"security_exception","reason":"action [x] is unauthorized"}}', Reason.ES_AUTH),
        (403, b"<html>forbidden by the proxy</html>", Reason.ES_AUTH),
        (400, b'{"error":{"type":"media_type_header_exception","reason":"Accept version 9"}}', Reason.ES_CONFIG),
        (405, b"", Reason.ES_CONFIG),
        (301, b"", Reason.ES_CONFIG),
        (404, b'{"error":{"type":"index_not_found_exception","reason":"no such index [x]"}}', Reason.ES_INDEX_MISSING),
    ],
)
def test_a_refusal_of_the_whole_request_is_systemic_and_spends_nothing(
    status: int, body: bytes, reason: Reason
) -> None:
    with scripted(lambda _: answer(status, body)) as server, elastic_sink(server.url) as sink:
        report = sink.write(ACTIONS, 5.0)
        assert len(server.bulks) == 1, "our own mistake is not searched for in the rows"
    assert report.unreachable is None
    for outcome in report.outcomes:
        assert isinstance(outcome, Failure)
        assert (outcome.reason, outcome.failure_class) == (reason, FailureClass.SYSTEMIC)


def test_an_answer_that_no_rule_knows_is_tried_again_and_announced() -> None:
    facts: list[Fact] = []
    strange = '{"index":{"status":400,"error":{"type":"brand_new_exception","reason":"x"}}}'
    with scripted(lambda _: items(strange, OK, GONE)) as server, elastic_sink(server.url, facts.append) as sink:
        first, second, _ = sink.write(ACTIONS, 5.0).outcomes
    assert isinstance(first, Failure)
    assert (first.reason, first.failure_class) == (Reason.UNKNOWN, FailureClass.TRANSIENT)
    assert second == WRITTEN
    assert Unclassified(400, "brand_new_exception") in facts


@pytest.mark.parametrize(("size", "reason"), [(2000, Reason.TOO_LARGE), (10, Reason.ES_429)])
def test_only_a_document_as_large_as_a_batch_is_too_large_after_three_refusals(size: int, reason: Reason) -> None:
    throttled = answer(429, b'{"error":{"type":"circuit_breaking_exception","reason":"[parent] Data too large"}}')
    action = BulkAction("things", "big", 1, None, b'{"a":"' + b"x" * size + b'"}')
    with scripted(lambda _: throttled) as server, elastic_sink(server.url, batch_bytes=1000) as sink:
        seen = [sink.write([action], 5.0).outcomes[0] for _ in range(3)]
    assert [outcome.reason for outcome in seen if isinstance(outcome, Failure)] == [
        Reason.ES_429,
        Reason.ES_429,
        reason,
    ]


def test_the_key_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    with scripted(lambda _: items(OK)) as server, elastic_sink(server.url, api_key="first", api_key_file=file) as sink:
        sink.write(ACTIONS[:1], 5.0)
        file.write_text("the-second\n")
        sink.write(ACTIONS[:1], 5.0)
        file.unlink()
        sink.write(ACTIONS[:1], 5.0)
    sent = [request.headers["authorization"] for request in server.bulks]
    assert sent == ["ApiKey first", "ApiKey the-second", "ApiKey the-second"]


def test_a_password_is_sent_as_basic_authentication_and_never_shown() -> None:
    facts: list[Fact] = []
    with (
        scripted(lambda _: answer(401)) as server,
        elastic_sink(server.url, facts.append, username="me", password="hidden-word") as sink,
    ):
        report = sink.write(ACTIONS[:1], 5.0)
    assert server.bulks[0].headers["authorization"].startswith("Basic ")
    assert "hidden-word" not in repr(report) + repr(facts)
