"""TLS: the deadline holds there too, and a certificate that is not trusted is a setting, not an outage."""

import ssl
import subprocess
from pathlib import Path

import pytest

from outbox.policy.outcome import WRITTEN, Failure, Reason
from outbox.ports import BulkAction
from tests.fixtures.scripted import answer, scripted
from tests.fixtures.sinks import elastic_sink

ACTION = BulkAction("things", "a", 1, None, b'{"t":"' + b"x" * 1_000_000 + b'"}')
FINE = answer(200, b'{"errors":false,"items":[{"index":{"status":201}}]}')


def made(folder: Path, *names: str) -> Path:
    """A key and a certificate for these names, signed by itself."""
    asked = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    extra = ["-addext", f"subjectAltName={','.join(names)}"] if names else []
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(["openssl", *asked.split(), *extra, *files], check=True, capture_output=True)
    return folder / "cert.pem"


def served(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.parent / "key.pem")
    return context


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1")


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    return served(certificate)


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


@pytest.mark.parametrize("names", [("DNS:elsewhere.example",), ("DNS:a.example", "IP:127.0.0.2"), ()], ids=str)
def test_a_trusted_certificate_for_another_name_or_none_is_a_setting_too(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    other = made(tmp_path, *names)
    with scripted(lambda _: FINE, tls=served(other)) as server, elastic_sink(server.url, ca_certs=other) as sink:
        for failure in (*sink.write([ACTION], 10.0).outcomes, sink.probe("things")):
            assert isinstance(failure, Failure)
            assert failure.reason is Reason.ES_CONFIG
            assert "ELASTIC_URL" in failure.error
        assert server.requests == []


def test_a_plain_server_at_a_tls_address_is_not_reached() -> None:
    with scripted(lambda _: FINE) as server, elastic_sink(server.url.replace("http", "https")) as sink:
        report = sink.write([ACTION], 10.0)
    assert isinstance(report.outcomes[0], Failure)
    assert report.outcomes[0].reason is Reason.CONNECT
