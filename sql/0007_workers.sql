-- Why:  what the daemons share: who is alive, which batches are in flight, what operators have stopped, what the
--       limits leave, and the counts behind the statistics. All small and hot, so vacuum comes early and costs little.
-- Undo:
--   drop table if exists search_outbox_workers, search_outbox_leases, search_outbox_controls, search_outbox_quotas,
--       search_outbox_rollup;
--   delete from search_outbox_migrations where name = '0007_workers';
-- Roles (granted by a later migration): projector SELECT, INSERT, UPDATE, DELETE; operator the same on controls;
--       reader SELECT.

create table search_outbox_workers (
    worker_id          text primary key,
    start_id           uuid not null,
    host               text,
    pid                int,
    version            text,
    started_at         timestamptz not null default clock_timestamp(),
    heartbeat_at       timestamptz not null default clock_timestamp(),
    heartbeat_seconds  real not null default 20,
    entity_types       text[],
    state              text not null default 'running',
    rebuild_seen       bigint
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- No further index: a few rows, read as a whole. A heartbeat changes only lease_until and stays HOT.
create table search_outbox_leases (
    token        uuid primary key,
    owner        text not null,
    start_id     uuid not null,
    lease_until  timestamptz not null,
    started_at   timestamptz not null default clock_timestamp(),
    ids          uuid[] not null,
    counts       jsonb not null default '{}'
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- 500 ids are 8 KB: out of line either way, and compressing uuids costs CPU for nothing.
alter table search_outbox_leases alter column ids set storage external;

-- scope: '*', 'type:T', 'let_fail:FINGERPRINT' or 'webhook:HOST#HASH' (search_outbox_webhook_key).
create table search_outbox_controls (
    scope      text primary key,
    kind       text not null default 'pause' check (kind in ('pause', 'let_fail', 'webhook_disabled')),
    paused_by  text not null,
    reason     text not null,
    at         timestamptz not null default clock_timestamp(),
    until      timestamptz
);

create table search_outbox_quotas (
    entity_type    text primary key,
    max_in_flight  int check (max_in_flight >= 0),
    rate           real check (rate >= 0),
    tokens         real not null default 0,
    refilled_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create table search_outbox_rollup (
    bucket       timestamptz not null,
    span         text not null check (span in ('minute', 'hour')),
    entity_type  text not null,
    outcome      text not null,
    reason       text not null default '',
    n            bigint not null default 0,
    primary key (bucket, span, entity_type, outcome, reason)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
