"""Logins that leave this machine in clear are named; what stays here, or is encrypted, is not."""

from typing import Any

import pytest

from outbox.ops.doctor.transport import LoginAddresses, transport
from outbox.ports import Level

HERE = LoginAddresses(["http://localhost:9200"], True, ["127.0.0.1"], "prefer")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, []),
        ({"search": ["http://[::1]:9200", "https://es.internal:9200"]}, []),
        ({"database_hosts": ["/var/run/postgresql", "localhost"]}, []),
        ({"search": ["http://es.internal:9200"], "search_login": False}, []),
        ({"search": ["https://a:9200", "http://es.internal:9200"]}, ["ELASTIC_URL"]),
        ({"database_hosts": ["localhost", "db.internal"]}, ["DATABASE_URL"]),
        ({"database_hosts": ["10.0.0.5"], "sslmode": "disable"}, ["DATABASE_URL"]),
        ({"database_hosts": ["db.internal"], "sslmode": "require"}, []),
        ({"database_hosts": ["db.internal"], "sslmode": "verify-full"}, []),
        ({"search": ["http://es:9200"], "database_hosts": ["db"]}, ["ELASTIC_URL", "DATABASE_URL"]),
    ],
)
def test_a_login_that_leaves_this_machine_in_clear_is_named(changed: dict[str, Any], named: list[str]) -> None:
    found = list(transport(HERE._replace(**changed)))
    assert [finding.level for finding in found] == [Level.WARN] * len(named)
    assert all(name in finding.remedy for name, finding in zip(named, found, strict=True))
