-- Failed events as people work through them: previews, groups by fingerprint, plans. All of it reads failed rows only.

-- name: preview
-- Reads: one page of what a replay with this filter would take, in the replay's own order.
select e.id, e.entity_type, e.entity_id::text as entity_id, e.op, e.event_version, e.status, e.attempts, e.replay_count,
       e.error_reason, e.error_code, e.error, e.error_fingerprint, e.dead_reason, e.failed_at, e.created_at,
       e.last_replayed_at, substr(e.traceparent, 4, 32) as trace_id
  from search_outbox_events e
 where e.failed_at is not null and e.status = 'failed' /* and filter */
 order by e.failed_at, e.id limit %(limit)s offset %(offset)s

-- name: count
-- Reads: how many failed events match, up to a limit.
select count(*) from (
    select from search_outbox_events e
     where e.failed_at is not null and e.status = 'failed' /* and filter */
     limit %(most)s) found

-- name: by_type
-- Reads: failed events that match by entity type, up to a limit of rows.
select f.entity_type, count(*) as n
  from (select e.entity_type from search_outbox_events e
         where e.failed_at is not null and e.status = 'failed' /* and filter */
         limit %(most)s) f
 group by f.entity_type

-- name: groups
-- Reads: failed events by fingerprint, from the index alone where vacuum has been, up to a limit of rows. First by all
-- that is listed, then by fingerprint: a distinct list over all rows would sort them.
with kinds as (
    select f.error_fingerprint, f.entity_type, f.dead_reason, min(f.error_reason collate "C") as error_reason,
           min(f.error_code collate "C") as error_code, count(*) as n, count(*) filter (where f.replay_count > 0) as failed_again,
           min(f.failed_at) as first_failed_at, max(f.failed_at) as last_failed_at,
           count(*) filter (where f.failed_at >= d.day) as last_day,
           count(*) filter (where f.failed_at >= d.day - interval '1 day' and f.failed_at < d.day) as day_before
      from (select e.error_fingerprint, e.entity_type, e.dead_reason, e.error_reason, e.error_code, e.replay_count,
                   e.failed_at
              from search_outbox_events e
             where e.failed_at is not null /* and filter */
             limit %(most)s) f
     cross join (select clock_timestamp() - interval '1 day' as day offset 0) d
     group by f.error_fingerprint, f.entity_type, f.dead_reason
)
select k.error_fingerprint as fingerprint, min(k.error_reason) as error_reason, min(k.error_code) as error_code,
       sum(k.n)::bigint as n, sum(k.failed_again)::bigint as failed_again,
       array_agg(distinct k.entity_type) as entity_types,
       array_agg(distinct k.dead_reason) filter (where k.dead_reason is not null) as dead_reasons,
       min(k.first_failed_at) as first_failed_at, max(k.last_failed_at) as last_failed_at,
       sum(k.last_day)::bigint as last_day, sum(k.day_before)::bigint as day_before
  from kinds k
 group by k.error_fingerprint
 order by n desc, last_failed_at desc limit %(limit)s

-- name: group_samples
-- Reads: the newest failure of each of these groups, for its words.
select g.fingerprint, s.id, s.error, s.entity_type, s.entity_id, s.last_replayed_at
  from unnest(%(fingerprints)s::text[]) as g (fingerprint)
 cross join lateral (
        select e.id, e.error, e.entity_type, e.entity_id::text as entity_id, e.last_replayed_at
          from search_outbox_events e
         where e.failed_at is not null and e.error_fingerprint = g.fingerprint
         order by e.failed_at desc limit 1) s

-- name: group_hours
-- Reads: these groups by hour, for their sparklines.
select e.error_fingerprint as fingerprint, date_trunc('hour', e.failed_at) as hour, count(*) as n
  from search_outbox_events e
 where e.failed_at is not null and e.error_fingerprint = any (%(fingerprints)s::text[])
   and e.failed_at >= (select clock_timestamp()) - %(window)s::interval
 group by 1, 2

-- name: _planned
-- What a replay would pin: failed events that match, the longest failed first, up to the limit.
select e.id, e.entity_type, e.entity_id::text as entity_id, e.routing, e.op, e.event_version, e.error_reason,
       e.error_fingerprint, e.error, e.failed_at, e.status
  from search_outbox_events e
 where e.failed_at is not null and e.status = 'failed' /* and filter */
 order by e.failed_at, e.id limit %(limit)s

-- name: plan_counts
-- Reads: a plan by entity type, reason and fingerprint, and as a whole.
with planned as (
-- include: _planned
)
select grouping(entity_type, error_reason, error_fingerprint) as level, entity_type, error_reason, error_fingerprint,
       count(*) as n, min(failed_at) as oldest, max(failed_at) as newest
  from planned
 group by grouping sets ((entity_type), (error_reason), (error_fingerprint), ())
 order by n desc

-- name: plan_rows
-- Reads: a plan's rows, in order.
-- include: _planned

-- name: chosen_rows
-- Reads: events by their ids, whatever their state.
select e.id, e.entity_type, e.entity_id::text as entity_id, e.routing, e.op, e.event_version, e.error_reason,
       e.error_fingerprint, e.error, e.failed_at, e.status
  from search_outbox_events e
 where e.id = any (%(ids)s::uuid[]) /* and filter */
 order by array_position(%(ids)s::uuid[], e.id)

-- name: plan_ids
-- Reads: the ids of a plan, in order.
select p.id from (
-- include: _planned
) p
