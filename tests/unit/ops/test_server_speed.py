"""What the doctor says of a server's settings. They belong to the whole server, which other tests use too."""

from typing import Any, cast

import pytest

from outbox.ops.doctor.database import speed
from outbox.ports import Level
from outbox.store.doctor import PostgresDoctor

GIGABYTE = 2**30
WELL = {
    "shared_buffers": 128 * 2**20,
    "autovacuum": True,
    "max_wal_size": "1GB",
    "bytes": 100 * 2**20,
    "wal_bytes": 10 * GIGABYTE,
    "whole_pages": 1_000_000,  # 4 GB
}


class SettingsOnly:
    def __init__(self, **about: Any) -> None:
        self.about = WELL | about

    def speed(self) -> dict[str, Any]:
        return self.about


def found(**about: Any) -> list[tuple[Level, str, str]]:
    store = cast("PostgresDoctor", SettingsOnly(**about))
    return [(finding.level, finding.detail, finding.remedy) for finding in speed(store)]


def test_a_server_whose_buffers_hold_the_outbox_is_well() -> None:
    assert found() == [(Level.OK, "shared_buffers 128 MB, max_wal_size 1GB; outbox 100 MB", "")]


@pytest.mark.parametrize(
    ("about", "says", "remedy"),
    [
        ({"autovacuum": False}, "autovacuum is off", "alter system set autovacuum = on"),
        ({"bytes": 200 * 2**20}, "outbox 200 MB: larger than the buffers", "a quarter of the machine's memory"),
        ({"whole_pages": 2_000_000}, "about 76% of the WAL are whole pages", "max_wal_size = '8GB'` (now 1GB)"),
    ],
)
def test_what_costs_throughput_is_named_with_its_remedy(about: dict[str, Any], says: str, remedy: str) -> None:
    ((level, detail, advice),) = found(**about)
    assert level is Level.WARN
    assert says in detail
    assert remedy in advice
