"""A memory limit that is lower than the settings may need is said at the start."""

from pathlib import Path

import pytest

from outbox.daemon.memory import allowed_bytes, warn_of_limit
from outbox.facts import Fact, Warned

MIB = 2**20


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/\n", {"memory.max": "402653184"}, 384 * MIB),  # a container
        ("0::/system.slice/o.service\n", {"system.slice/o.service/memory.max": "134217728"}, 128 * MIB),
        ("0::/\n", {"memory.max": "max"}, None),
        ("4:memory:/docker/1f\n0::/\n", {"memory/memory.limit_in_bytes": "134217728"}, 128 * MIB),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "2", "memory/memory.limit_in_bytes": "9"}, 2),
        ("4:cpu,cpuacct:/\n", {}, None),
        (None, {}, None),
    ],
)
def test_the_limit_is_read_from_either_version_of_control_groups(
    groups: str | None, files: dict[str, str], limit: int | None, tmp_path: Path
) -> None:
    given = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    if groups is not None:
        given["proc/self/cgroup"] = groups
    for name, text in given.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert allowed_bytes(tmp_path) == limit


@pytest.mark.parametrize(("allowed", "warned"), [(128 * MIB, True), (384 * MIB, False), (None, False)])
def test_a_limit_below_what_is_documented_is_said_with_what_to_change(allowed: int | None, warned: bool) -> None:
    """By default two lanes, 8 and 32 MiB; the limit in deploy/kubernetes is the second."""
    facts: list[Fact] = []
    warn_of_limit(allowed, 2, 8 * MIB, 32 * MIB, facts.append)
    assert [fact.event for fact in facts if isinstance(fact, Warned)] == ["memory.limit"] * warned
    if warned:
        assert "128 MiB" in str(facts[0])
        assert "OUTBOX_MAX_DOCUMENT_BYTES" in str(facts[0])
