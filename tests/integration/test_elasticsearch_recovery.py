"""What the search server itself forgets in a crash: an acknowledged document that its mapping of that day refuses."""

import os

import pytest

from labs.client import connect
from outbox.embedded.folders import default_data_dir, temporary_folder
from outbox.embedded.stack import search_server
from tests.fixtures.servers import PRODUCT
from tests.fixtures.waiting import eventually

VERSION = os.environ.get(PRODUCT)
# Two starts of a server of its own, to show what is not ours. `scripts/compat` names the server and runs it.
pytestmark = pytest.mark.slow if VERSION else pytest.mark.long


@pytest.mark.parametrize("flushed", [False, True], ids=["in the log only", "flushed"])
def test_a_mapping_that_became_stricter_takes_acknowledged_documents_along_in_a_crash(flushed: bool) -> None:
    """Found by half an hour of the nemesis: two of 86,074. `outbox verify` names them, `repair` brings them back."""
    version = VERSION or "8"
    with (
        temporary_folder(default_data_dir()) as folder,
        search_server(version)(folder / "server", version=version) as server,
        connect(server.url, request_timeout=60) as client,
    ):
        revision = {"type": "long", "ignore_malformed": True}
        client.indices.create(index="a", mappings={"properties": {"revision": revision}})
        client.index(index="a", id="1", document={"revision": "no number"})
        client.indices.put_mapping(index="a", properties={"revision": {**revision, "ignore_malformed": False}})
        if flushed:
            client.indices.flush(index="a", force=True, wait_if_ongoing=True)
        server.kill()
        server.start()
        eventually(lambda: client.cluster.health(index="a")["status"] != "red", what="the shard is back")
        assert bool(client.exists(index="a", id="1")) is flushed
