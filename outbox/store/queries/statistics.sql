-- Statistics: failed rows by their own indexes, everything else from the roll-up that the daemons feed. Done rows are
-- never read.

-- name: failed
-- Reads: failed rows by entity type and reason, from the failure index alone where vacuum has been, up to a limit.
select f.entity_type, f.error_reason, count(*) as n, count(*) filter (where f.replay_count > 0) as failed_again,
       min(f.failed_at) as oldest, max(f.failed_at) as newest
  from (select entity_type, error_reason, replay_count, failed_at from search_outbox_events
         where failed_at is not null limit %(most)s) f
 group by f.entity_type, f.error_reason

-- name: failed_hours
-- Reads: rows that failed lately and still are, by hour and reason.
select date_trunc('hour', f.failed_at) as hour, f.error_reason, count(*) as n
  from (select error_reason, failed_at from search_outbox_events
         where failed_at is not null and failed_at >= (select clock_timestamp()) - %(window)s::interval limit %(most)s) f
 group by 1, 2
 order by 1

-- name: discarded
-- Reads: discarded rows by entity type, from their own list.
select entity_type, count(*) as n from search_outbox_discards group by entity_type order by n desc limit %(limit)s

-- name: outcomes
-- Reads: what became of events, by hour, type, outcome and reason, over the last hours.
select date_trunc('hour', bucket) as hour, entity_type, outcome, reason, sum(n)::bigint as n
  from search_outbox_rollup
 where bucket >= date_trunc('hour', (select clock_timestamp()) - %(window)s::interval)
 group by 1, 2, 3, 4
 order by 1

-- name: totals
-- Reads: what became of events in all that the roll-up remembers, by type and outcome.
select entity_type, outcome, sum(n)::bigint as n from search_outbox_rollup group by 1, 2

-- name: replays
-- Reads: how the replays of the last hours ended.
select count(*) as batches, coalesce(sum(replayed), 0)::bigint as replayed, coalesce(sum(done), 0)::bigint as done,
       coalesce(sum(failed_again), 0)::bigint as failed_again
  from search_outbox_replays where created_at >= (select clock_timestamp()) - %(window)s::interval

-- name: compact
-- Adds minutes up together into hours, a few thousand at a time.
with old as (
    delete from search_outbox_rollup
     where ctid = any (array(select ctid from search_outbox_rollup
                              where span = 'minute' and bucket < date_trunc('hour', (select clock_timestamp()) - %(age)s::interval)
                              order by bucket limit %(limit)s))
    returning bucket, entity_type, outcome, reason, n
), hours as (
    insert into search_outbox_rollup (bucket, span, entity_type, outcome, reason, n)
    select date_trunc('hour', bucket), 'hour', entity_type, outcome, reason, sum(n) from old
     group by 1, 3, 4, 5 order by 1, 3, 4, 5
        on conflict (bucket, span, entity_type, outcome, reason) do update set n = search_outbox_rollup.n + excluded.n
)
select count(*) from old

-- name: minutes
-- Reads: finished events of the last minutes by entity type; the key's first column bounds the scan.
select entity_type, bucket as minute, sum(n)::bigint as n
  from search_outbox_rollup
 where bucket >= date_trunc('minute', (select clock_timestamp()) - %(window)s) and span = 'minute'
   and outcome in ('done', 'superseded', 'missing')
 group by 1, 2
