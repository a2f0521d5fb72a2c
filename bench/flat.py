"""flat: drain rate and claim p99 with ten million done and a million pending rows, against a small table."""

import time
from contextlib import ExitStack

import psycopg

from bench.account import CpuAccount
from bench.drain import warm_up
from bench.load import document_sql, fill, rest, text_of
from bench.result import BenchmarkResult, Threshold, percentile, progress
from bench.stack import BenchmarkServers
from bench.worker import LOG, Daemons, claim_seconds, daemons, log_size, settled

RATE = Threshold("drain rate, large / small table", 0.90, 0.97)
CLAIM = Threshold("claim p99, large / small table", 2.0, 1.3, most=True)
LIMIT_SECONDS = 600
SIDES = ("small", "large")


def run(
    stack: BenchmarkServers,
    *,
    smoke: bool = False,
    rounds: int = 3,
    done: int = 10_000_000,
    pending: int = 1_000_000,
    size: int = 200,
) -> BenchmarkResult:
    """Each round drains `pending / rounds` rows on each side: at least 1,000 claims per side in total."""
    done, pending, rounds = (5_000, 2_000, 1) if smoke else (done, pending, rounds)
    part = pending // rounds
    result = BenchmarkResult("flat", smoke)
    result.settings = {"done": done, "pending": pending, "document_bytes": size, "a round": part}
    result.documents = text_of(size)
    claims: dict[str, list[float]] = {side: [] for side in SIDES}
    settings = {"OUTBOX_LOG_LEVEL": "info"}
    with ExitStack() as open_ones:
        urls = {side: open_ones.enter_context(stack.database()) for side in SIDES}
        index = open_ones.enter_context(stack.index())
        if not smoke:
            warm_up(stack, urls["small"], index, size)
        progress(f"filling {done:,} done and {pending:,} pending rows")
        _fill_done(urls["large"], done)
        _add_pending(urls["large"], pending + pending // 5, size)  # a daemon takes more than its part before it pauses
        running = {
            side: open_ones.enter_context(daemons(url, stack.elastic_url, index, settings=settings, paused=True))
            for side, url in urls.items()
        }
        if not smoke:
            progress("a warm-up round")
            fill(urls["small"], part, size)
            small = running["small"]
            _drain(CpuAccount(stack, urls["small"], small), small, part, BenchmarkResult("warm", True), "small")
        for _ in range(rounds):
            for side in SIDES:
                if side == "small":
                    fill(urls[side], part, size)
                progress(f"{side} table: {part:,} events")
                stack.fresh_index(index)
                stack.quiet()
                before = log_size()
                rate = _drain(CpuAccount(stack, urls[side], running[side]), running[side], part, result, side)
                claims[side] += claim_seconds(before)
                result.add(f"drain, {side} table", "events/s", rate)
    _judge(result, claims)
    return result


def _judge(result: BenchmarkResult, claims: dict[str, list[float]]) -> None:
    for side in SIDES:
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            result.add(
                f"claim {name}, {side} table ({len(claims[side])} claims)", "ms", percentile(claims[side], share) * 1000
            )
    result.judge(RATE, result.divide("rate, large / small", "drain, large table", "drain, small table"))
    result.judge(CLAIM, percentile(claims["large"], 0.99) / percentile(claims["small"], 0.99))


def _drain(account: CpuAccount, running: Daemons, events: int, result: BenchmarkResult, side: str) -> float:
    """Rate from the first settled batch to the one that completes `events`; then the daemon pauses. Counted from its
    own log lines: counting ten million rows would itself be a load."""
    before = log_size()
    account.open()
    running.resume()
    ends = time.monotonic() + LIMIT_SECONDS
    while sum(n for _, n in settled(before)) < events:
        running.check_alive()
        if time.monotonic() > ends:
            raise TimeoutError(f"{events:,} events were not done within {LIMIT_SECONDS} s; see {LOG}")
        time.sleep(0.5)
    account.close(result, sum(n for _, n in settled(before)), f"{side} table: ")
    running.pause()
    batches = settled(before)
    span = batches[-1][0] - batches[0][0]
    return sum(n for _, n in batches[1:]) / span if span else float(events)


def _fill_done(url: str, done: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        step = 500_000
        for start in range(0, done, step):
            connection.execute(
                "insert into search_outbox_events (entity_type, entity_id, op, status, processed_at, attempts,"
                " last_attempt_at, payload, created_at)"
                " select 'article', g::text, 'upsert', 'done', now() - interval '1 day', 1, now() - interval '1 day',"
                f" {document_sql(200)}, now() - interval '1 day' from generate_series(%s::int, %s::int) g",
                [start + 1, min(start + step, done)],
            )
            progress(f"{min(start + step, done):,} done rows")
        connection.execute("vacuum analyze search_outbox_events")


def _add_pending(url: str, pending: int, size: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into search_outbox_events (entity_type, entity_id, op, payload)"
            f" select 'article', 'p' || g::text, 'upsert', {document_sql(size)} from generate_series(1, %s) g",
            [pending],
        )
    rest(url)
