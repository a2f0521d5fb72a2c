"""Nobody moves on before every worker has confirmed and earlier batches are over."""

import os
import socket

import pytest

from outbox.reindex.rebuild_steps import dead_owner, new_owner


@pytest.mark.parametrize(
    ("owner", "dead"),
    [
        (None, False),
        ("elsewhere:1:ab", False),
        (f"{socket.gethostname()}:{os.getpid()}:ab", False),
        (f"{socket.gethostname()}:x:ab", False),
        (f"{socket.gethostname()}:4194305:ab", True),
    ],
    ids=["nobody", "another host", "this process", "no pid", "a pid that is gone"],
)
def test_only_a_process_of_this_host_that_is_gone_is_known_dead(owner: str | None, dead: bool) -> None:
    assert dead_owner(owner) == (owner if dead else None)
    assert dead_owner(new_owner()) is None
