"""People at the console, in a real browser against a real projector, database and Elasticsearch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from elasticsearch import Elasticsearch
from playwright.sync_api import Browser, Page, expect

from tests.fixtures.audits import age_audit
from tests.fixtures.browser import open_page, overflow, serious_findings, shot, violations
from tests.fixtures.console import console_process
from tests.fixtures.depth import depth
from tests.fixtures.failures import audit_counts, events
from tests.fixtures.processes import RunningProcess, StartProcess
from tests.fixtures.waiting import eventually

SCREENS = {
    "overview": "/ops/queue",
    "failures": "/ops/queue/failures",
    "failed-list": "/ops/queue/failures/list",
    "events": "/ops/queue/events?status=done",
    "event": "/ops/queue/events/{failed}",
    "replay": "/ops/queue/replay",
    "replays": "/ops/queue/replays",
    "replay-batch": "/ops/queue/replays/{replay}",
    "audit": "/ops/queue/audit",
    "index": "/ops/verify",
    "webhooks": "/ops/queue/webhooks",
    "system": "/ops/queue/system",
    "runbook": "/ops/queue/runbook",
    "api": "/api/v1/docs",
    "not-found": "/ops/queue/events/nothing",
    "empty": "/ops/queue/failures?entity_type=nothing-like-it",
}


@pytest.fixture
def running(
    start_process: StartProcess, database: str, elastic_url: str, index: str
) -> Iterator[tuple[RunningProcess, str]]:
    env = {"DATABASE_URL": database, "ELASTIC_URL": elastic_url, "ELASTIC_INDEX": index}
    more = {"OUTBOX_REDACT_FIELDS": "email", "OUTBOX_LOG_FORMAT": "json"}
    with console_process(start_process, env | more) as found:
        yield found


@pytest.fixture
def url(running: tuple[RunningProcess, str]) -> str:
    return running[1]


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with open_page(browser, url) as page:
        yield page


def insert(connection: psycopg.Connection, kind: str, n: int, **fields: Any) -> None:
    for number in range(n):
        payload = {"title": f"{kind} {number}", "email": "someone@example", **fields}
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload) values (%s, %s, 'upsert', %s)",
            [kind, f"{kind[0]}-{number:03}", json.dumps(payload)],
        )


def count(connection: psycopg.Connection, status: str) -> int:
    row = connection.execute("select count(*) from search_outbox_events where status = %s", [status]).fetchone()
    return int(row[0]) if row else 0


def test_a_person_finds_a_group_replays_three_and_accounts_for_it(
    page: Page,
    url: str,
    connection: psycopg.Connection,
    es: Elasticsearch,
    index: str,
    start_daemon: StartProcess,
    tmp_path: Path,
) -> None:
    es.indices.put_mapping(index=index, properties={"price": {"type": "long"}, "stock": {"type": "long"}})
    insert(connection, "product", 30, price="twelve")
    insert(connection, "order", 30, stock="many")
    daemon = start_daemon()
    eventually(lambda: count(connection, "failed") == 60, what="sixty failed")

    # Two groups, one of which names the field at fault.
    page.goto("/ops/queue")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Caught up")
    page.get_by_role("link", name="See the groups").click()
    groups = page.locator("tbody tr", has=page.get_by_role("link", name="es_rejected_document"))
    expect(groups).to_have_count(2)
    groups.first.get_by_role("link", name="es_rejected_document").click()
    expect(page.get_by_role("heading", name="Failed events")).to_be_visible()
    page.locator("tbody th a").first.click()
    expect(page.locator(".diff .offending")).to_contain_text('"')
    expect(page.locator(".json")).not_to_contain_text("someone@example")

    # Preview over two pages without duplicates; two chosen on the first, one on the second.
    page.goto("/ops/queue/replay?error_reason=es_rejected_document")
    first = page.locator('input[name="ids"]').evaluate_all("boxes => boxes.map(box => box.value)")
    page.locator('input[name="ids"]').nth(0).check()
    page.locator('input[name="ids"]').nth(1).check()
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_text("Page 2")).to_be_visible()
    second = page.locator('input[name="ids"]').evaluate_all("boxes => boxes.map(box => box.value)")
    assert len(first) == 50
    assert len(second) == 10
    assert not set(first) & set(second)
    page.locator('input[name="ids"]').nth(0).check()
    chosen = [first[0], first[1], second[0]]

    # The mapping is fixed, the plan is seen, a reason is given.
    lenient = {"type": "long", "ignore_malformed": True}
    es.indices.put_mapping(index=index, properties={"price": lenient, "stock": lenient})
    page.get_by_role("button", name="replay 3 selected").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("This would replay 3 events")
    shot(page, "plan-light")
    assert audit_counts(connection) == {}, "a plan changes nothing"
    page.get_by_label("Your name").fill("alice")
    page.get_by_label("Reason").fill("mapping fixed")
    page.get_by_role("button", name="Replay 3 events").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("All done: 3 events")
    assert count(connection, "failed") == 57
    rows = connection.execute(
        "select status from search_outbox_events where id = any (%s::uuid[])", [chosen]
    ).fetchall()
    assert rows == [("done",)] * 3

    # Its audit rows, exported and pruned.
    page.get_by_role("link", name="Audit rows of this replay").click()
    expect(page.locator("tbody tr", has_text="REPLAY_BATCH_ITEM")).to_have_count(3)
    expect(page.locator("tbody tr", has_text="REPLAY_BATCH_SUMMARY")).to_have_count(1)
    for form in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Export {form}").click()
        text = Path(download.value.path()).read_text()
        assert text.count("REPLAY_BATCH_ITEM") == 3
        assert download.value.suggested_filename.endswith(form.lower())
    age_audit(connection)
    page.locator("summary", has_text="Prune old rows").click()
    page.get_by_label("Older than days").fill("7")
    page.locator("#prune-reason").fill("done with")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#prune .note")).to_contain_text("4 rows")
    assert audit_counts(connection)["REPLAY_BATCH_ITEM"] == 3
    page.get_by_role("button", name="Remove 4 rows").click()
    expect(page.get_by_text("Pruned.")).to_be_visible()
    assert audit_counts(connection) == {"AUDIT_EXPORTED": 2, "AUDIT_PRUNE_SUMMARY": 1}
    assert violations(page) == []
    assert daemon.returncode is None


def seed(connection: psycopg.Connection, url: str) -> dict[str, str]:
    """Something on every screen."""
    import urllib.request

    failed = events(connection, 12, entity_type="product", age="3 hours")
    events(
        connection, 5, entity_type="order", reason="timeout", fingerprint="1111111111111111", prefix="o", age="30 hours"
    )
    events(connection, 4, status="done", prefix="d")
    insert(connection, "article", 3)
    connection.execute(
        "update search_outbox_events set error = %s, payload = %s where entity_type = 'product'",
        [
            "document_parsing_exception: failed to parse field [price] of type [long]",
            '{"id": 12345678901234567890, "price": "twelve", "email": "someone@example", "tags": ["a"]}',
        ],
    )
    connection.execute(
        "insert into search_outbox_webhook_deliveries (type, url, body, status, attempts, response_status)"
        " values ('replay.settled', 'https://hooks.example/x', '{}', 'delivered', 1, 200)"
    )
    body = json.dumps({"by": "alice", "reason": "mapping fixed", "ids": [str(id) for id in failed[:2]]}).encode()
    request = urllib.request.Request(
        f"{url}/api/v1/failed/replay", body, {"content-type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request) as reply:
        replay = json.load(reply)["id"]
    return {"failed": str(failed[5]), "replay": replay}


# Each has something that no other has: cards, a chart, a table with boxes, forms, a payload.
QUICK = ("overview", "failures", "event", "replay", "audit")


def test_every_screen_is_accessible_in_both_themes_fits_on_a_phone_and_keeps_to_its_policy(
    browser: Browser, url: str, connection: psycopg.Connection
) -> None:
    """A theme changes colours only: the dark one is checked for contrast, on the same page."""
    ids = seed(connection, url)
    with open_page(browser, url, color_scheme="light") as page:
        for name in depth(QUICK, SCREENS):
            page.emulate_media(color_scheme="light")
            page.goto(SCREENS[name].format(**ids))
            expect(page.get_by_role("heading", level=1)).to_have_count(1)
            shot(page, f"{name}-light")
            assert serious_findings(page) == [], f"{name} in light"
            if name in depth(("overview",), SCREENS):
                page.emulate_media(color_scheme="dark")
                shot(page, f"{name}-dark")
                assert serious_findings(page, "color-contrast") == [], f"{name} in dark"
            page.set_viewport_size({"width": 390, "height": 844})
            shot(page, f"{name}-phone")
            assert overflow(page) <= 0, f"{name} is {overflow(page)} px too wide"
            page.set_viewport_size({"width": 1280, "height": 800})
            assert violations(page) == [], name


def test_everything_can_be_read_without_javascript(browser: Browser, url: str, connection: psycopg.Connection) -> None:
    ids = seed(connection, url)
    with open_page(browser, url, java_script_enabled=False) as page:
        for name in depth(QUICK, SCREENS):
            page.goto(SCREENS[name].format(**ids))
            expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.goto("/ops/queue/failures")
        page.locator("summary", has_text="Filter").click()
        page.get_by_label("Error reason").fill("timeout")
        page.get_by_role("button", name="Apply").click()
        assert "error_reason=timeout" in page.url
        expect(page.locator("tbody").first.locator("tr")).to_have_count(1)


def test_a_refresh_keeps_selection_and_focus_can_be_paused_and_says_when_the_console_is_gone(
    page: Page, running: tuple[RunningProcess, str], connection: psycopg.Connection
) -> None:
    page.clock.install()  # its own time: nobody waits for a timer of the page
    events(connection, 3, age="2 hours")
    page.goto("/ops/queue/replay")
    boxes = page.locator('input[name="ids"]')
    expect(boxes).to_have_count(3)
    boxes.nth(1).check()
    boxes.nth(1).focus()
    chosen = boxes.nth(1).input_value()
    events(connection, 1, prefix="new", age="1 minute")
    page.clock.run_for(7_000)
    expect(boxes).to_have_count(4)
    kept = page.locator(f'input[value="{chosen}"]')
    expect(kept).to_be_checked()
    expect(kept).to_be_focused()
    expect(page.get_by_role("button", name="replay 1 selected")).to_be_enabled()
    asked: list[str] = []
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "true")
    page.on("request", lambda request: asked.append(request.url))
    events(connection, 1, prefix="newer", age="30 seconds")
    page.clock.run_for(7_000)  # longer than its interval
    assert asked == []
    page.keyboard.press("p")
    page.clock.run_for(7_000)
    expect(boxes).to_have_count(5)
    expect(kept).to_be_checked()
    expect(page.locator("#stale")).to_be_hidden()
    running[0].terminate()
    page.clock.run_for(30_000)
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#stale")).to_contain_text("s old")
    expect(boxes).to_have_count(5)


def test_the_keyboard_leads_everywhere(page: Page, connection: psycopg.Connection) -> None:
    events(connection, 3)
    page.goto("/ops/queue")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("heading", level=1)).to_contain_text("3 events have failed")
    page.keyboard.press("/")
    expect(page.get_by_label("Entity type")).to_be_focused()
    page.keyboard.type("jx?")
    expect(page.get_by_label("Entity type")).to_have_value("jx?")
    page.goto("/ops/queue/replay")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator('input[name="ids"]').first).to_be_checked()
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
