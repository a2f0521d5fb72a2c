-- Why:  the outbox itself. One row per event, kept after its end; status is for people, the times decide what is open
--       (open = processed_at is null and failed_at is null), because a claim must not change an indexed column.
--       Fillfactor 45 leaves room for the claim's new row version on the same page: a HOT update touches no index (56
--       to 72 % of claims are HOT at 60, 80 to 93 % at 50, 96 to 100 % at 45). No check on op: an unknown op is the
--       worker's to fail. `read_version` and `read_found` keep what the last lookup of an event was written as, for
--       people.
--       Vacuum comes at a tenth of dead rows: it reads every index from end to end, so its cost per event is the
--       table's size divided by how many events it waits for. At 1 %, with ten million kept rows, it came as often as
--       autovacuum wakes up during a drain, by our estimate (`bench flat`: 0.85 before, 0.913 with this and larger
--       buffers). Claims do not need it: they start behind what is finished, and mark what they meet dead as dead. A
--       tenth is as much as the table may grow by between two of them.
--       Where the table exists already, `outbox migrate` adopts it instead (sql/adoption) and this file is not run.
-- Undo:
--   drop table search_outbox_events;
--   delete from search_outbox_migrations where name = '0002_events';
-- Undo (adopted):
--   drop table if exists search_outbox_adoption;
--   alter table search_outbox_events drop constraint if exists search_outbox_events_status_check;
--   alter table search_outbox_events drop column seq, drop column payload, drop column routing,
--       drop column idempotency_key, drop column abandoned_count, drop column max_attempts, drop column lease_token,
--       drop column last_attempt_at, drop column failed_at, drop column error_code, drop column error_fingerprint,
--       drop column dead_reason, drop column error_detail, drop column read_version, drop column read_found;
--   alter table search_outbox_events alter column id drop default, alter column event_version drop default,
--       alter column status drop default, alter column attempts drop default, alter column replay_count drop default,
--       alter column created_at drop default, alter column updated_at drop default;
--   alter table search_outbox_events reset (fillfactor, autovacuum_vacuum_scale_factor,
--       autovacuum_vacuum_threshold, autovacuum_vacuum_cost_limit, autovacuum_analyze_scale_factor,
--       autovacuum_analyze_threshold);
--   delete from search_outbox_migrations where name = '0002_events';
-- Roles (granted by a later migration): producer INSERT; projector SELECT, UPDATE, DELETE; operator SELECT, UPDATE;
--       reader SELECT.

create table search_outbox_events (
    id                     uuid primary key,
    seq                    bigint default nextval('search_outbox_seq'),
    entity_type            text not null,
    entity_id              text not null,
    op                     text not null,
    event_version          bigint not null default nextval('search_outbox_version'),
    payload                json,
    routing                text,
    idempotency_key        text,
    status                 text not null default 'pending',
    attempts               int not null default 0,
    replay_count           int not null default 0,
    abandoned_count        int not null default 0,
    max_attempts           int,
    owner                  text,
    lease_until            timestamptz,
    lease_token            uuid,
    processing_started_at  timestamptz,
    last_attempt_at        timestamptz,
    next_retry_at          timestamptz,
    processed_at           timestamptz,
    failed_at              timestamptz,
    error_reason           text,
    error_code             text,
    error                  text,
    error_fingerprint      text,
    dead_reason            text,
    error_detail           json,
    last_replayed_at       timestamptz,
    last_replayed_by       text,
    last_replayed_reason   text,
    traceparent            text,
    tracestate             text,
    created_at             timestamptz not null default now(),
    updated_at             timestamptz not null default now(),
    read_version           bigint,
    read_found             boolean,
    constraint search_outbox_events_status_check
        check (status in ('pending', 'processing', 'done', 'failed', 'discarded'))
) with (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_analyze_threshold = 5000
);

do $do$
begin
    execute format('alter table search_outbox_events alter column id set default %s()',
        case when current_setting('server_version_num')::int < 180000 then 'search_outbox_uuidv7' else 'uuidv7' end);
end
$do$;
