"""An embedded Elasticsearch: kept data, security, HTTPS and settings as the labs want them."""

import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from elasticsearch import AuthenticationException, Elasticsearch

from outbox.embedded import EmbeddedElasticsearch, TlsFiles

pytestmark = pytest.mark.slow


@pytest.mark.long  # two starts of a server of its own: 50 s beside other tests
def test_documents_and_port_survive_a_restart_and_a_crash(server_folder: Path) -> None:
    with EmbeddedElasticsearch(server_folder / "elasticsearch") as server, Elasticsearch(server.url) as client:
        client.index(index="kept", id="1", document={"n": 42})
        port = server.port
        server.kill()
        assert not server.running
        server.start()
        client.cluster.health(index="kept", wait_for_status="yellow", timeout="60s")
        assert client.get(index="kept", id="1")["_source"] == {"n": 42}
        assert server.port == port


def test_a_probe_that_connects_to_itself_is_no_answer(server_folder: Path) -> None:
    """On loopback a free port among the ephemeral ones may be given to the probe itself: it reads its own request."""
    with socket.create_server(("127.0.0.1", 0)) as mirror:
        threading.Thread(target=_send_back, args=(mirror,), daemon=True).start()
        server = EmbeddedElasticsearch(server_folder / "elasticsearch", port=mirror.getsockname()[1])
        assert server._answers() is False


def _send_back(mirror: socket.socket) -> None:
    connection, _ = mirror.accept()
    with connection:
        connection.sendall(connection.recv(10_000))


@pytest.fixture
def certificate(tmp_path: Path) -> TlsFiles:
    files = TlsFiles(tmp_path / "http.crt", tmp_path / "http.key")
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(files.key), "-out", str(files.certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    return files


@pytest.mark.long  # test_search_logins runs on such a server
def test_with_a_password_and_a_certificate_only_those_who_know_both_get_in(
    server_folder: Path, certificate: TlsFiles
) -> None:
    settings = {"thread_pool.write.size": 1, "thread_pool.write.queue_size": 3}
    server = EmbeddedElasticsearch(
        server_folder / "elasticsearch", password="correct-horse", tls=certificate, settings=settings
    )
    trust: dict[str, Any] = {"ca_certs": str(certificate.certificate)}
    with server, Elasticsearch(server.url, **trust) as stranger:
        with pytest.raises(AuthenticationException):
            stranger.info()
        known = stranger.options(basic_auth=("elastic", "correct-horse"))
        node = next(iter(known.nodes.info()["nodes"].values()))
        assert node["settings"]["thread_pool"]["write"]["queue_size"] == "3"
