-- Why:  what people do with failures: the attempts behind an event, replays with their pinned ids, and webhook
--       deliveries that outlive the process that made them.
--       No foreign keys to the events: pruning removes both sides in one step, and a key would cost every settle.
--       Commands and the console replay in processes of their own, whose counters nobody scrapes. What a replay has
--       moved and how it ended is counted and logged by the next daemon that reads it, once over all of them: the
--       columns `told_...` say up to where.
--       The path of a webhook's address is often its secret. So PostgreSQL itself computes a name without the path
--       (host and the first digits of a hash) beside both columns, a control bears that name, and the reader's role may
--       read every column but the address.
-- Undo:
--   drop table if exists search_outbox_attempts, search_outbox_replay_items, search_outbox_replays,
--       search_outbox_webhook_deliveries;
--   drop function if exists search_outbox_webhook_key(text);
--   delete from search_outbox_migrations where name = '0008_operations';
-- Roles (granted by a later migration): projector INSERT and DELETE on attempts; operator SELECT, INSERT, UPDATE on
--       replays, items and deliveries; reader SELECT on all columns but the addresses.

-- The same name as `url_key` in outbox/policy/webhook.py gives.
create or replace function search_outbox_webhook_key(url text) returns text
language sql immutable strict parallel safe as $fn$
    select coalesce(pg_catalog.lower(coalesce(pg_catalog.substring(url, '://(?:[^/?#]*@)?\[([^]]+)\]'),
                                              pg_catalog.substring(url, '://(?:[^/?#]*@)?([^/?#:]+)'))), '?')
           || '#' || pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(url, 'UTF8')), 'hex'), 12)
$fn$;

create table search_outbox_attempts (
    event_id  uuid not null,
    attempt   int not null,
    replay    int not null default 0,
    at        timestamptz not null default clock_timestamp(),
    worker    text,
    reason    text,
    code      text,
    error     text,
    detail    json
);
create index search_outbox_attempts_event_idx on search_outbox_attempts (event_id);

create table search_outbox_replays (
    id                uuid primary key,
    client_id         text unique,
    status            text not null default 'queued' check (status in
                      ('queued', 'dispatching', 'following', 'settled', 'failed', 'timeout', 'cancelled')),
    requested_by      text not null,
    requested_reason  text not null,
    role              text,
    source            text not null default 'cli',
    filter            json,
    rate              real,
    webhook_url       text,
    total             int not null default 0,
    replayed          int not null default 0,
    skipped           int not null default 0,
    done              int not null default 0,
    failed_again      int not null default 0,
    still_open        int not null default 0,
    created_at        timestamptz not null default clock_timestamp(),
    dispatched_at     timestamptz,
    settled_at        timestamptz,
    updated_at        timestamptz not null default clock_timestamp(),
    owner             text,
    lease_token       uuid,
    lease_until       timestamptz,
    poll_count        int not null default 0,
    last_poll_at      timestamptz,
    next_poll_at      timestamptz,
    cancelled_by      text,
    failure_type      text,
    reason            text,
    told_replayed     int not null default 0,
    told_skipped      int not null default 0,
    told_over         boolean not null default false,
    webhook_to        text generated always as (search_outbox_webhook_key(webhook_url)) stored
) with (fillfactor = 70);
create index search_outbox_replays_created_idx on search_outbox_replays (created_at);
create index search_outbox_replays_live_idx on search_outbox_replays (created_at)
    where status in ('queued', 'dispatching', 'following');
-- The `tell` query, once per second and daemon: it must cost nothing while nobody replays.
create index search_outbox_replays_untold_idx on search_outbox_replays (created_at) where not told_over;

-- state: pinned -> replayed | skipped. replay_count is the event's own after the dispatch: it tells this replay's
-- outcome from a later one's.
create table search_outbox_replay_items (
    replay_id     uuid not null references search_outbox_replays on delete cascade,
    event_id      uuid not null,
    ordinal       int not null,
    state         text not null default 'pinned' check (state in ('pinned', 'replayed', 'skipped')),
    skip_reason   text,
    replay_count  int,
    outcome       text,
    at            timestamptz,
    primary key (replay_id, event_id)
) with (fillfactor = 70);
create index search_outbox_replay_items_pinned_idx on search_outbox_replay_items (replay_id, ordinal)
    where state = 'pinned';
-- Items whose end is not known yet, from the last one backwards.
create index search_outbox_replay_items_open_idx on search_outbox_replay_items (replay_id, ordinal)
    where state = 'replayed' and outcome is null;
create index search_outbox_replay_items_event_idx on search_outbox_replay_items (event_id);

create table search_outbox_webhook_deliveries (
    id               uuid primary key,
    type             text not null,
    url              text not null,
    body             json not null,
    dedupe_key       text unique,
    replay_id        uuid,
    status           text not null default 'pending' check (status in ('pending', 'delivered', 'given_up', 'disabled')),
    attempts         int not null default 0,
    created_at       timestamptz not null default clock_timestamp(),
    last_attempt_at  timestamptz,
    next_attempt_at  timestamptz default clock_timestamp(),
    delivered_at     timestamptz,
    response_status  int,
    error            text,
    redelivered_by   text,
    sent_to          text generated always as (search_outbox_webhook_key(url)) stored
) with (fillfactor = 70);
create index search_outbox_webhook_deliveries_due_idx on search_outbox_webhook_deliveries (next_attempt_at)
    where status = 'pending';
create index search_outbox_webhook_deliveries_created_idx on search_outbox_webhook_deliveries (created_at);

do $do$
declare
    new_id text := case when current_setting('server_version_num')::int < 180000
                        then 'search_outbox_uuidv7' else 'uuidv7' end;
begin
    execute format('alter table search_outbox_replays alter column id set default %s()', new_id);
    execute format('alter table search_outbox_webhook_deliveries alter column id set default %s()', new_id);
end
$do$;
