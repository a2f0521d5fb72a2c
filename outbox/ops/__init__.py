"""The only API for people: commands, REST, console and library are skins on these services. They see ports, not stores.

Built by `outbox.app.operations.operations(settings, database, elastic)` (and `app.desk` for status, events, pauses).
Everything takes an `Actor(name, source, role)` where something is written, returns frozen dataclasses, and raises the
`OutboxError` family: `policy.inputs.BadRequest` (field, what) for bad input, `NotFound`, `Conflict`, `policy.inputs.NothingMatches`.

| asked | service |
|---|---|
| the filters, names, reasons, limits, cursors as people give them | `policy.inputs`: `read_event_filter(raw, now)`, `read_audit_filter(raw, now)`, `actor`, `reason`, `whole`, `uuid`, `read_cursor` |
| `GET events`, `GET failed`, `GET events/{id}` | `events.Browse.page(...)`, `.show(id)` |
| `GET failed/groups` | `failures.FailureDesk.groups(filter, limit)` |
| `GET failed/preview` | `failures.FailureDesk.preview(filter, page, page_size)` |
| `POST failed/replay` with `dry_run` | `replay.plan.Planner.plan(filter, limit)`; a file: `plan.written(plan)`, `plan.read(text)` |
| `POST failed/replay`, `POST events/{id}/replay` | `replay.desk.ReplayDesk.create(ReplayRequest(...)) -> Created`, then `.dispatch(created, tell, stop)`, in a thread where a request must not wait; `client_id` is the idempotency key |
| follow, wait | `ReplayDesk.wait(id)`, or one check: `ReplayDesk.follow(id)` |
| `GET replays`, `GET replays/{id}`, cancel | `ReplayDesk.page(cursor, limit, live)`, `.show(id)`, `.cancel(id, actor, reason)` |
| programs | `ReplayDesk.replay_one(id, actor, reason)`, `.replay_many(ids, ...)`, `failures.StatsDesk.failed()` |
| `POST events/{id}/discard`, `POST failed/flush` | `discard.DiscardDesk.discard(id, actor, reason)`, `.flush(filter, expect, actor, reason, approved_by)` |
| `GET audit`, export, prune, verify | `audit.AuditDesk.page(filter, cursor, limit)`, `.export(filter, format, actor)`, `.prune(filter, older_than_days, actor, reason, dry_run, archive)`, `.verify()` |
| `GET stats` | `failures.StatsDesk.read(hours)`, `.finished()` (done by type, from the roll-up) |
| `outbox prune` | `retention.Retention.run(events_days, audit_days, actor, dry_run)` |
| `POST pause`, `POST resume` | `pauses.Pauses.pause(...)`, `.resume(...)`, `.let_fail(...)` |
| `GET webhooks/deliveries`, redeliver, test, verify | `webhook.WebhookDesk.page(cursor, limit)`, `.redeliver(id, actor)`, `.test()`, `webhook.check_signature(...)` |
"""  # noqa: E501 - a table
