"""The upper limit: prepared bodies, sent by `_bulk` over as many connections as the daemon uses."""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import urllib3


def send(elastic_url: str, index: str, bodies: Sequence[bytes], connections: int) -> float:
    """Seconds from the first request to the last reply. A failed request aborts it."""
    pool = urllib3.PoolManager(num_pools=1, maxsize=connections)
    url = f"{elastic_url}/{index}/_bulk?filter_path=errors,items.*.status,items.*.error"

    def post(body: bytes) -> None:
        reply = pool.request("POST", url, body=body, headers={"content-type": "application/x-ndjson"})
        if reply.status != 200 or b'"errors":true' in reply.data[:40]:
            raise RuntimeError(f"raw bulk failed: {reply.data[:300].decode(errors='replace')}")

    with ThreadPoolExecutor(connections) as lanes:
        started = time.monotonic()
        deque(lanes.map(post, bodies), maxlen=0)
        return time.monotonic() - started
