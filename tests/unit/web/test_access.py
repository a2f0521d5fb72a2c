"""Tokens, cookies, hosts and origins: who is let in, decided from headers and a file alone."""

import os
from pathlib import Path

import pytest

from outbox.errors import ConfigurationError
from outbox.web.auth import (
    LIFETIME_SECONDS,
    MOST_OF_ONE,
    Person,
    Role,
    Sessions,
    TokenFile,
    hashed,
    peer,
)
from outbox.web.console_server import in_both_families


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "tokens"
    made.write_text(f"# people\n\nalice:operator:{hashed('obx_alice')}\nvic:viewer:{hashed('obx_vic')}\n")
    return made


def change(file: Path, text: str) -> None:
    stamp = file.stat().st_mtime_ns
    file.write_text(text)
    os.utime(file, ns=(stamp, stamp + 1_000_000))


def test_a_token_finds_its_person_and_nobody_else(file: Path) -> None:
    tokens = TokenFile(file)
    found = tokens.holder("obx_alice")
    assert found is not None
    assert (found.name, found.role) == ("alice", Role.OPERATOR)
    assert tokens.holder("obx_alicf") is None
    assert tokens.holder("") is None
    assert tokens.holder(hashed("obx_alice")) is None, "the hash in the file is no token"


def test_a_wrong_line_is_refused_at_start_and_left_out_later(file: Path) -> None:
    tokens = TokenFile(file)
    tokens.check()
    change(file, f"alice:operator:{hashed('obx_alice')}\nbroken line\nvic:chief:{'0' * 64}\n")
    assert tokens.holder("obx_alice")
    with pytest.raises(ConfigurationError, match=r"line 2.*\n.*line 3"):
        TokenFile(file).check()


def test_a_cookie_holds_for_a_while_and_only_while_its_token_does(file: Path) -> None:
    tokens, now = TokenFile(file), [1_000_000.0]
    sessions = Sessions(tokens, lambda: now[0])
    entry = tokens.holder("obx_alice")
    assert entry is not None
    cookie = sessions.issue(entry)
    assert sessions.person(cookie) == Person("alice", Role.OPERATOR)
    now[0] += LIFETIME_SECONDS + 1
    assert sessions.person(cookie) is None
    now[0] -= LIFETIME_SECONDS
    change(file, f"alice:operator:{hashed('obx_other')}\n")
    assert sessions.person(cookie) is None


def test_who_logs_in_very_often_ends_their_own_sessions_and_nobody_elses(file: Path) -> None:
    change(file, f"alice:operator:{hashed('obx_alice')}\nbob:viewer:{hashed('obx_bob')}\n")
    tokens = TokenFile(file)
    sessions, alice, bob = Sessions(tokens), tokens.holder("obx_alice"), tokens.holder("obx_bob")
    assert alice is not None
    assert bob is not None
    hers, first = sessions.issue(alice), sessions.issue(bob)
    last = [sessions.issue(bob) for _ in range(MOST_OF_ONE)][-1]
    assert [sessions.person(cookie) is not None for cookie in (hers, first, last)] == [True, False, True]


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "-"),
        (None, "-"),
        ("a name", "-"),
    ],
)
def test_a_client_is_its_address_or_the_network_that_it_has_to_itself(address: str | None, key: str) -> None:
    assert peer(address) == key


def test_a_proxy_is_trusted_on_a_socket_for_both_families_too() -> None:
    trusted = in_both_families(["10.0.0.7", "192.0.2.0/24", "2001:db8::/32"])
    assert trusted == ["10.0.0.7", "192.0.2.0/24", "2001:db8::/32", "::ffff:10.0.0.7/128", "::ffff:192.0.2.0/120"]


def test_a_changed_file_is_reread_and_a_removed_one_lets_nobody_in(file: Path) -> None:
    tokens = TokenFile(file)
    assert tokens.holder("obx_vic")
    change(file, f"alice:admin:{hashed('obx_alice')}\n")
    assert tokens.holder("obx_vic") is None
    found = tokens.holder("obx_alice")
    assert found is not None
    assert found.role is Role.ADMIN
    file.unlink()
    assert tokens.holder("obx_alice") is None
