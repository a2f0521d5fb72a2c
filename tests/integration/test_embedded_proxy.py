"""A proxy in the environment: Maven gets it, with its password in no argument and no log; loopback goes past it."""

import base64
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox.embedded import fetching
from outbox.embedded.errors import FetchFailed, ProxyUnusable
from outbox.embedded.maven_proxy import maven_settings
from outbox.embedded.pins import DEBEZIUM

PASSWORD = "pa%20ss"  # as it stands in an address
VARIABLES = [name for pair in ("http", "https", "all", "no") for name in (f"{pair}_proxy", f"{pair.upper()}_PROXY")]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """Its address with name and password, and every request that came. It connects nobody: it asks, then refuses."""
    asked: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_refuse, args=(server, asked), daemon=True).start()
        yield f"http://me:{PASSWORD}@127.0.0.1:{server.getsockname()[1]}", asked


def _refuse(server: socket.socket, asked: list[str]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            asked.append(connection.recv(10_000).decode())
            ask = b"407 Who are you\r\nProxy-Authenticate: Basic realm=x" if "Basic" not in asked[-1] else b"502 No"
            connection.sendall(b"HTTP/1.1 " + ask + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.mark.release("it runs Maven; the settings that it gets have a quick test")
def test_maven_goes_through_the_proxy_and_its_password_is_in_no_log(
    proxy: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address, asked), repository = proxy, tmp_path / "cache" / "fetch" / "maven"
    monkeypatch.setenv("HTTPS_PROXY", address)
    monkeypatch.setattr(fetching, "user_home", lambda: tmp_path)
    with pytest.raises(FetchFailed) as failed:
        fetching.fetched(DEBEZIUM, tmp_path / "cache", lambda _: None)
    assert asked[0].startswith("CONNECT ")
    known = base64.b64encode(b"me:pa ss").decode()
    assert any(f"Proxy-Authorization: Basic {known}" in request for request in asked)
    written = str(failed.value) + (repository / "maven.log").read_text()
    assert "pa ss" not in written
    assert PASSWORD not in written
    assert not (repository / "settings.xml").exists()


def test_the_settings_of_a_person_are_kept_and_the_file_is_closed_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = tmp_path / "theirs.xml", tmp_path / "ours.xml"
    theirs.write_text("<settings><mirrors><mirror><id>house</id></mirror></mirrors></settings>")
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", "10.0.0.1, .example.org")
    assert maven_settings(theirs, ours) == ["-s", str(ours)]
    text = ours.read_text()
    assert "<mirror><id>house</id></mirror>" in text
    assert "<host>proxy.example</host><port>3128</port>" in text
    assert "<nonProxyHosts>localhost|127.*|10.0.0.1|*.example.org</nonProxyHosts>" in text
    assert ours.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("address", "settings", "why"),
    [
        ("http://me:secret@proxy:port", "<settings/>", "the port in https_proxy is not a number"),
        ("http://me:secret@proxy:3128", "<settings><proxies></settings>", "theirs.xml cannot be read"),
    ],
    ids=["no port", "no XML"],
)
def test_what_cannot_be_used_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, settings: str, why: str
) -> None:
    theirs = tmp_path / "theirs.xml"
    theirs.write_text(settings)
    monkeypatch.setenv("https_proxy", address)
    with pytest.raises(ProxyUnusable, match=why) as refused:
        maven_settings(theirs, tmp_path / "ours.xml")
    assert "secret" not in str(refused.value)
