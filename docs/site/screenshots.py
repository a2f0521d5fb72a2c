"""Takes the screenshots of docs/images: `.venv/bin/python docs/site/screenshots.py`, a minute on servers of its own.

`outbox up` with its sample, some events that fail, and the distribution's Chromium.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg
from playwright.sync_api import sync_playwright

from outbox.embedded.elasticsearch import EmbeddedElasticsearch
from outbox.embedded.postgres import EmbeddedPostgres
from outbox.embedded.process import free_port

IMAGES = Path(__file__).resolve().parents[1] / "images"
SCREENS = {"console": "/ops/queue", "failures": "/ops/queue/failures"}
SIZE = {"width": 1200, "height": 760}
# Two kinds: an unknown op, and a document that does not fit the mapping of the sample.
FAILING = """
insert into search_outbox_events (entity_type, entity_id, op, payload)
select 'invoice', g::text, 'archive', null::jsonb from generate_series(1, 3) g
union all
select 'review', g::text, 'upsert', '{"published_at": "next tuesday"}'::jsonb from generate_series(1, 8) g
"""
FAILED = "select count(*) from search_outbox_events where failed_at is not null"
WARM_SECONDS = 40.0  # so that the rates have a minute to show


def main() -> None:
    with EmbeddedPostgres.temporary() as postgres, EmbeddedElasticsearch.temporary(heap="512m") as elastic:
        port = free_port()
        ports = {"OUTBOX_CONSOLE_PORT": str(port), "OUTBOX_METRICS_PORT": str(free_port())}
        env = {**os.environ, **ports, "DATABASE_URL": postgres.url, "ELASTIC_URL": elastic.url}
        up = subprocess.Popen([sys.executable, "-m", "outbox", "up", "--rate", "20"], env=env)
        try:
            take(f"http://127.0.0.1:{port}", postgres.url)
        finally:
            up.terminate()
            up.wait(60)


def take(console: str, database: str) -> None:
    until(lambda: urllib.request.urlopen(f"{console}/healthz").status == 200)  # noqa: S310
    time.sleep(WARM_SECONDS)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(FAILING)
        until(lambda: (connection.execute(FAILED).fetchone() or (0,))[0] >= 3)
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        for name, path in SCREENS.items():
            page.goto(console + path)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()


def until(holds: Callable[[], bool], seconds: float = 180.0) -> None:
    ends = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        if time.monotonic() > ends:
            raise TimeoutError("the console or the failed events did not come")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
