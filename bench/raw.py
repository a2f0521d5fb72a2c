"""The ceiling: bodies built beforehand, sent by `_bulk` over as many connections as the daemon uses."""

import threading
import time
from collections.abc import Sequence

import urllib3


def send(elastic_url: str, index: str, bodies: Sequence[bytes], connections: int) -> float:
    """Seconds from the first request to the last answer."""
    pool = urllib3.PoolManager(num_pools=1, maxsize=connections)
    url = f"{elastic_url}/{index}/_bulk?filter_path=errors,items.*.status,items.*.error"
    turn = iter(bodies)
    lock = threading.Lock()
    failures: list[str] = []

    def lane() -> None:
        while True:
            with lock:
                body = next(turn, None)
            if body is None:
                return
            reply = pool.request("POST", url, body=body, headers={"content-type": "application/x-ndjson"})
            if reply.status != 200 or b'"errors":true' in reply.data[:40]:
                failures.append(reply.data[:300].decode(errors="replace"))

    threads = [threading.Thread(target=lane) for _ in range(connections)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - started
    if failures:
        raise RuntimeError(f"raw bulk failed: {failures[0]}")
    return took
