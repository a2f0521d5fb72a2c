"""Requests that are signed for AWS: the published examples, and what arrives at a server that checks every signature by
itself. Nothing here was run against AWS."""

import hashlib
import hmac
import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import botocore.auth
import pytest

from outbox.config import ElasticSettings
from outbox.errors import OutboxError
from outbox.facts import Fact
from outbox.policy.outcome import WRITTEN, Failure, FailureClass, Reason
from outbox.ports import BulkAction, Level
from outbox.sink.client import Elastic, NoReply, NotAccepted, Reply, connect
from outbox.sink.elastic import ElasticSink
from outbox.sink.new_index import ElasticNewIndex
from outbox.sink.server_check import ElasticServerCheck
from outbox.sink.signing import AwsSigner
from tests.fixtures.scripted import Request, answer, scripted

KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
TOKEN = (
    "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthA"
    "x7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6"
    "d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="
)
REGION = "eu-central-1"
ACTION = BulkAction("things", "a", 1, None, b'{"n": 1}')
FINE = answer(200, b'{"errors":false,"items":[{"index":{"status":201}}]}')


@pytest.fixture(autouse=True)
def no_other_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither of this machine nor of a network that it is in."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", raising=False)
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return monkeypatch


# The examples that AWS has published (aws-sig-v4-test-suite): name, method, query, content type, body, token, signature

EXAMPLES = [
    ("get-vanilla", "GET", "", "", b"", "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    (
        "get-vanilla-query-order-key-case",
        "GET",
        "?Param2=value2&Param1=value1",
        "",
        b"",
        "",
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    (
        "post-sts-header-before",
        "POST",
        "",
        "",
        b"",
        TOKEN,
        "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
    ),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[each[0] for each in EXAMPLES])
def test_the_published_examples_are_signed_as_published(example: tuple[Any, ...], keys: pytest.MonkeyPatch) -> None:
    _, method, query, kind, body, token, signature = example
    keys.setattr(botocore.auth, "get_current_datetime", lambda: datetime(2015, 8, 30, 12, 36, tzinfo=UTC))
    if token:
        keys.setenv("AWS_SESSION_TOKEN", token)
    keys.setattr("outbox.sink.signing.SERVICE", "service")
    sign = AwsSigner("us-east-1")
    # The port is the scheme's own, as a node's address has it; the examples' host is without.
    headers = {"accept": "application/json", **({"content-type": kind} if kind else {})}
    signed = sign(method, f"https://example.amazonaws.com:443/{query}", headers, body)
    assert signed["X-Amz-Date"] == "20150830T123600Z"
    covered = {"content-type": kind, "host": True, "x-amz-date": True, "x-amz-security-token": token}
    names = ";".join(name for name, is_there in covered.items() if is_there)
    assert signed["Authorization"] == (
        f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20150830/us-east-1/service/aws4_request,"
        f" SignedHeaders={names}, Signature={signature}"
    )


# What arrives


def hashed(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature_of(request: Request, names: str, scope: str, secret: str) -> str:
    """As AWS's documents say, from the bytes that arrived and nothing else."""
    path, _, query = request.path.partition("?")
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(query, keep_blank_values=True))
    lines = [request.method, quote(path, safe="/-_.~"), "&".join(f"{key}={value}" for key, value in pairs)]
    lines += [f"{name}:{' '.join(request.headers[name].split())}" for name in names.split(";")]
    canonical = "\n".join([*lines, "", names, hashlib.sha256(request.body).hexdigest()])
    told = hashlib.sha256(canonical.encode()).hexdigest()
    key = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        key = hashed(key, part)
    return hashed(key, "\n".join(["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, told])).hex()


def require_signed(request: Request, host: str, secret: str = SECRET) -> str:
    """Whose signature it is. It covers the host, the content type of a body, the date and the token."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=(\w+)/(\S+), SignedHeaders=(\S+), Signature=(\w+)",
        request.headers["authorization"],
    )
    assert found is not None
    key_id, scope, names, signature = found.groups()
    needed = {"host", "x-amz-date"} | ({"content-type", "x-amz-security-token"} & request.headers.keys())
    assert set(names.split(";")) == needed
    assert request.headers["host"] == host
    assert scope == f"{request.headers['x-amz-date'][:8]}/{REGION}/es/aws4_request"
    assert signature == signature_of(request, names, scope, secret)
    return str(key_id)


def connected(*urls: str, announce: Any = lambda _: None) -> Elastic:
    return connect(ElasticSettings(url=",".join(urls), aws_region=REGION), announce=announce)


def test_every_request_that_arrives_has_a_signature_of_its_own_bytes(keys: pytest.MonkeyPatch) -> None:
    """Queries with `*` and `,`, wildcards in the path, encoded names, bodies and none, a prefix before the path."""
    keys.setenv("AWS_SESSION_TOKEN", TOKEN)
    with scripted(lambda _: FINE) as server:
        elastic = connected(f"{server.url}/a-prefix")
        sink = ElasticSink(elastic)
        assert sink.write([ACTION], 5.0).outcomes == [WRITTEN]
        assert sink.probe("things") is None
        ElasticNewIndex(elastic).exists("th,ings é")
        for method, target, body in (
            ("GET", "/th%2Cings-v*,b/_alias?expand_wildcards=all", None),
            ("POST", "/a/_search?filter_path=hits.*,-hits._x&routing=%2B%20%3D%26&pretty&b=&a=2&a=1", b"{}"),
            ("HEAD", "/", None),
            ("PUT", "/_bulk", "é".encode() * 100_000),
        ):
            assert isinstance(elastic.call(method, target, body), Reply)
        elastic.close()
    host = urlsplit(server.url).netloc
    assert len(server.requests) > 6
    assert {require_signed(request, host) for request in server.requests} == {KEY_ID}
    assert all(request.headers["x-amz-security-token"] == TOKEN for request in server.requests)
    assert all(request.path.startswith("/a-prefix/") for request in server.requests)
    with pytest.raises(AssertionError):  # the check itself notices one changed byte
        require_signed(server.bulks[0]._replace(body=server.bulks[0].body + b" "), host)


def test_of_several_nodes_each_gets_a_signature_for_its_own_host(keys: pytest.MonkeyPatch) -> None:
    """Also a request that one node did not serve and another one gets."""
    about = answer(200, json.dumps({"cluster_uuid": "c", "version": {}}).encode())
    seen = answer(200, b'{"things":{"aliases":{},"settings":{}}}')

    def other(request: Request) -> bytes:
        return about if request.path == "/" else seen

    refused = answer(503, b"no upstream", headers="", kind="text/plain")
    with scripted(lambda _: refused, other) as first, scripted(lambda _: FINE, other) as second:
        elastic = connected(first.url, second.url)
        sink = ElasticSink(elastic)
        assert [sink.write([ACTION], 5.0).outcomes for _ in range(2)] == [[WRITTEN]] * 2
        elastic.close()
    assert first.bulks
    assert second.bulks
    for server in (first, second):
        for request in server.requests:
            require_signed(request, urlsplit(server.url).netloc)


def test_credentials_that_expire_are_renewed_between_two_requests(tmp_path: Path) -> None:
    """By a helper program, one of the ways that botocore knows."""
    told = tmp_path / "told.json"

    def tell(key_id: str) -> None:
        about = {"Version": 1, "AccessKeyId": key_id, "SecretAccessKey": SECRET, "SessionToken": f"token-of-{key_id}"}
        told.write_text(json.dumps({**about, "Expiration": soon()}))

    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {told}\n")
    with scripted(lambda _: FINE) as server:
        elastic = connected(server.url)
        for key_id in ("FIRST", "SECOND"):
            tell(key_id)
            elastic.call("GET", "/things/_alias")
        elastic.close()
    host = urlsplit(server.url).netloc
    assert [require_signed(request, host) for request in server.requests] == ["FIRST", "SECOND"]
    assert [request.headers["x-amz-security-token"] for request in server.requests] == [
        "token-of-FIRST",
        "token-of-SECOND",
    ]


def soon() -> str:
    """Within the ten minutes in which botocore renews before anything else."""
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# What goes wrong


@pytest.mark.parametrize("nodes", [1, 2])
def test_without_credentials_nothing_is_sent_and_the_pause_says_what_to_give(nodes: int) -> None:
    facts: list[Fact] = []
    with scripted(lambda _: FINE) as first, scripted(lambda _: FINE) as second:
        elastic = connected(*[server.url for server in (first, second)][:nodes], announce=facts.append)
        sink = ElasticSink(elastic)
        outcomes = [*sink.write([ACTION, ACTION], 5.0).outcomes, sink.probe("things")]
        told = ElasticServerCheck(elastic, lambda _, id: id).server()
        with pytest.raises(NotAccepted, match="AWS_ACCESS_KEY_ID"):
            elastic.required()
        with pytest.raises(NotAccepted):
            ElasticServerCheck(elastic, lambda _, id: id).require()
        list(elastic.check_nodes())
        elastic.close()
        assert first.requests == second.requests == []
    for failure in outcomes:
        assert isinstance(failure, Failure)
        assert (failure.reason, failure.failure_class) == (Reason.ES_AUTH, FailureClass.SYSTEMIC)
        assert "no AWS credentials are found" in failure.error
        assert "***" not in failure.error
    assert told.level is Level.BAD
    assert "credentials" in told.remedy
    assert facts == [], "no node is at fault"


def test_a_helper_that_fails_is_named_and_what_it_prints_is_not(tmp_path: Path) -> None:
    (tmp_path / "config").write_text('[default]\ncredential_process = sh -c "echo canary-secret >&2; exit 3"\n')
    with scripted(lambda _: FINE) as server:
        elastic = connected(server.url)
        reply = elastic.call("GET", "/")
        elastic.close()
    assert isinstance(reply, NoReply)
    assert (reply.failure.reason, reply.sent) == (Reason.ES_AUTH, False)
    assert "cannot be read or renewed" in reply.failure.error
    assert "canary" not in str(reply) + str(reply.error())
    assert isinstance(reply.error(), OutboxError)


def test_a_refusal_of_aws_pauses_and_the_token_that_it_quotes_is_not_repeated(keys: pytest.MonkeyPatch) -> None:
    keys.setenv("AWS_SESSION_TOKEN", TOKEN)
    said = f"The request signature we calculated does not match ... should have been\n'GET\n{TOKEN}"

    def refusing(_: Request) -> Iterator[bytes] | bytes:
        return answer(403, json.dumps({"message": said}).encode(), headers="")

    with scripted(refusing, refusing) as server:
        elastic = connected(server.url)
        sink = ElasticSink(elastic)
        for failure in (*sink.write([ACTION], 5.0).outcomes, sink.probe("things")):
            assert isinstance(failure, Failure)
            assert failure.failure_class is FailureClass.SYSTEMIC
            assert "for a domain of AWS check the credentials" in failure.error
            assert TOKEN not in str(failure)
        elastic.close()


def test_no_secret_is_logged_or_shown(keys: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """At debug level botocore would log what it signs, the token included."""
    keys.setenv("AWS_SESSION_TOKEN", TOKEN)
    caplog.set_level(logging.DEBUG)
    settings = ElasticSettings(aws_region=REGION)
    with scripted(lambda _: FINE) as server:
        elastic = connected(server.url)
        elastic.call("GET", "/things/_alias")
        shown = f"{elastic!r} {elastic.node!r} {vars(elastic.node)!r} {settings!r} {caplog.text}"
        elastic.close()
    assert server.requests
    for secret in (SECRET, TOKEN, "Signature="):
        assert secret not in shown
