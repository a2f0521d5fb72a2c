"""TLS: the deadline holds there too, and a certificate that is not trusted is a setting, not an outage."""

import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.policy.outcome import WRITTEN, Failure, Reason
from outbox.ports import Action
from tests.fixtures.scripted import PRODUCT, Answer, Request, answer, scripted
from tests.fixtures.sinks import elastic_sink

ACTION = Action("things", "a", 1, None, b'{"t":"' + b"x" * 1_000_000 + b'"}')
FINE = answer(200, b'{"errors":false,"items":[{"index":{"status":201}}]}')


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    asked = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", *asked.split(), *files], check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.parent / "key.pem")
    return context


def test_a_trusted_server_is_written_to(tls: ssl.SSLContext, certificate: Path) -> None:
    with scripted(lambda _: FINE, tls=tls) as server, elastic_sink(server.url, ca_certs=certificate) as sink:
        assert list(sink.write([ACTION], 10.0).outcomes) == [WRITTEN]


def test_an_untrusted_certificate_is_a_setting_to_correct_and_spends_nothing(tls: ssl.SSLContext) -> None:
    with scripted(lambda _: FINE, tls=tls) as server, elastic_sink(server.url) as sink:
        for failure in (*sink.write([ACTION], 10.0).outcomes, sink.probe("things")):
            assert isinstance(failure, Failure)
            assert failure.reason is Reason.ES_CONFIG
            assert "ELASTIC_CA_CERTS" in failure.error
        assert server.bulks == []


def test_a_plain_server_at_a_tls_address_is_not_reached() -> None:
    with scripted(lambda _: FINE) as server, elastic_sink(server.url.replace("http", "https")) as sink:
        report = sink.write([ACTION], 10.0)
    assert isinstance(report.outcomes[0], Failure)
    assert report.outcomes[0].reason is Reason.CONNECT


def test_a_dripping_reply_is_given_up_at_the_deadline(tls: ssl.SSLContext, certificate: Path) -> None:
    def drip(_: Request) -> Answer:
        return _slowly(f"HTTP/1.1 200 OK\r\n{PRODUCT}content-length: 1000\r\n\r\n".encode() + b"x" * 1000)

    with scripted(drip, tls=tls) as server, elastic_sink(server.url, ca_certs=certificate) as sink:
        started = time.monotonic()
        report = sink.write([ACTION], 1.5)
        assert time.monotonic() - started < 3.0
    assert isinstance(report.outcomes[0], Failure)
    assert report.outcomes[0].reason is Reason.TIMEOUT


def _slowly(text: bytes) -> Iterator[bytes]:
    for letter in text:
        time.sleep(0.1)
        yield bytes([letter])
