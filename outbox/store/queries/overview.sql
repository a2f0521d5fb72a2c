-- What `outbox status` shows beside the sampler's counts. Every query is bounded: open and failed rows are read up to a
-- limit, done rows only by the index on processed_at and only of the last seconds.

-- name: open_by_type
-- Reads: open rows by entity type, the oldest ones up to a limit per scan.
select entity_type,
       count(*) filter (where status = 'pending') as pending,
       count(*) filter (where status = 'processing') as processing,
       greatest(extract(epoch from clock_timestamp() - greatest(least(min(created_at), clock_timestamp()), 'epoch')),
                0)::float8 as oldest_age_seconds,
       count(*) filter (where status = 'pending' and coalesce(next_retry_at <= clock_timestamp(), true)) as due
  from ((select entity_type, status, created_at, next_retry_at from search_outbox_events
          where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
          order by seq limit %(most)s)
        union all
        (select entity_type, status, created_at, next_retry_at from search_outbox_events
          where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
          order by next_retry_at limit %(most)s)
        union all
        (select entity_type, status, created_at, next_retry_at from search_outbox_events
          where processed_at is null and failed_at is null and abandoned_count > 0
          order by abandoned_count, seq limit %(most)s)) open_rows
 group by entity_type
 order by count(*) desc, entity_type
 limit %(most_types)s

-- name: failed_by_type
-- Reads: failed rows by entity type, the newest ones up to a limit.
select entity_type, count(*) as failed, max(failed_at) as last_failed_at
  from (select entity_type, failed_at from search_outbox_events
         where failed_at is not null order by failed_at desc limit %(most)s) newest
 group by entity_type
 order by count(*) desc, entity_type
 limit %(most_types)s

-- name: finished_lately
-- Reads: how many rows were finished in the last seconds, up to a limit.
select count(*) from (
    select from search_outbox_events
     where processed_at is not null and processed_at > (select clock_timestamp()) - %(window)s limit %(most)s) lately

-- name: workers
-- Reads: every worker that was seen, with what it holds. The database's clock says how long it has been silent.
select w.worker_id, w.state, w.host, w.pid, w.version, w.server, w.entity_types, w.started_at, w.heartbeat_at,
       greatest(extract(epoch from clock_timestamp() - w.heartbeat_at), 0)::float8 as silent_seconds,
       w.heartbeat_seconds::float8 as heartbeat_seconds,
       coalesce((select sum(cardinality(l.ids)) from search_outbox_leases l where l.start_id = w.start_id), 0)::bigint
           as inflight
  from search_outbox_workers w
 order by w.state = 'stopped', w.heartbeat_at desc
 limit %(most)s

-- name: pauses
-- Reads: what operators have said and not taken back.
select scope, kind, paused_by as by, reason, at, until from search_outbox_controls
 where kind in ('pause', 'let_fail') and (until is null or until > (select clock_timestamp()))
 order by at

-- name: last_seq
-- Reads: the highest seq that was drawn; events that commit later may still be below it.
select last_value from search_outbox_seq

-- name: open_up_to
-- Reads: is any row open that was there when the waiting began, and how many, up to a limit.
select (select count(*) from (select from search_outbox_events
         where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
           and seq <= %(seq)s limit %(most)s) fresh)
     + (select count(*) from (select from search_outbox_events
         where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
           and seq <= %(seq)s limit %(most)s) retries)
     + (select count(*) from (select from search_outbox_events
         where processed_at is null and failed_at is null and abandoned_count > 0
           and seq <= %(seq)s limit %(most)s) suspects)

-- name: declared
-- Reads: entity types and what keeps each.
select entity_type, kept_by, versions, moving from search_outbox_entity_types order by entity_type limit %(most_types)s
