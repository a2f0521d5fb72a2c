-- Claim and settle: the hot path. Predicates that an index needs stand here as literals: as parameters they gave a
-- Seq Scan. `{entity_id_type}` is the column's own type, learnt once: an adopted table has uuid there.

-- name: _take
-- pending -> processing for the rows in `picked`; the lease row is written by the same statement.
taken as (
    update search_outbox_events e
       set status = 'processing',
           owner = %(owner)s,
           lease_token = %(token)s,
           lease_until = clock_timestamp() + %(lease)s,
           processing_started_at = clock_timestamp(),
           last_attempt_at = clock_timestamp(),
           next_retry_at = null,
           attempts = attempts + 1,
           updated_at = clock_timestamp()
     where e.ctid = any (array(select ctid from picked))
       and e.status = 'pending'
    returning e.id, e.seq, e.entity_type, e.entity_id::text as entity_id, e.op, e.event_version,
              case when pg_column_size(e.payload) < 65536
                    and (pg_column_compression(e.payload) is null or octet_length(e.payload::text) < 65536)
                   then e.payload end as payload,
              case when pg_column_compression(e.payload) is null then pg_column_size(e.payload)
                   else octet_length(e.payload::text) end as payload_bytes,
              e.routing, e.attempts, e.max_attempts, e.abandoned_count, e.replay_count,
              (select bool_or(retried) from picked) as retried,
              extract(epoch from clock_timestamp() - e.created_at)::float8 as age_seconds,
              e.traceparent
), leased as (
    insert into search_outbox_leases (token, owner, start_id, lease_until, ids, counts)
    select %(token)s, %(owner)s, %(start_id)s, clock_timestamp() + %(lease)s, array_agg(id),
           (select jsonb_object_agg(entity_type, n)
              from (select entity_type, count(*) as n from taken group by entity_type) by_type)
      from taken
     where (select set_config('synchronous_commit', 'off', true)) is not null
    having count(*) > 0
)
select * from taken

-- name: claim
-- pending -> processing: due retries up to retry_limit, then fresh rows by seq. Two scans, never an OR over both.
with due as materialized (
    select ctid from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
       and next_retry_at <= (select clock_timestamp())
       and status = 'pending'
     order by next_retry_at limit %(retry_limit)s
       for no key update skip locked
), fresh as materialized (
    select ctid from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
       and seq >= %(floor)s
       and status = 'pending'
     order by seq limit %(limit)s - (select count(*) from due)
       for no key update skip locked
), picked as materialized (
    select ctid, true as retried from due union all select ctid, false from fresh
),
-- include: _take

-- name: claim_of_type
-- pending -> processing for one entity type, over the twins that `outbox migrate --by-type` adds.
with due as materialized (
    select ctid from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
       and entity_type = %(entity_type)s
       and next_retry_at <= (select clock_timestamp())
       and status = 'pending'
     order by next_retry_at limit %(retry_limit)s
       for no key update skip locked
), fresh as materialized (
    select ctid from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
       and entity_type = %(entity_type)s
       and seq >= %(floor)s
       and status = 'pending'
     order by seq limit %(limit)s - (select count(*) from due)
       for no key update skip locked
), picked as materialized (
    select ctid, true as retried from due union all select ctid, false from fresh
),
-- include: _take

-- name: claim_suspects
-- pending -> processing for rows whose worker died before: few at a time, so that the one to blame is found.
with picked as materialized (
    select ctid, true as retried from search_outbox_events
     where processed_at is null and failed_at is null and abandoned_count > 0
       and abandoned_count between %(suspects)s and %(suspects_most)s
       and (next_retry_at is null or next_retry_at <= (select clock_timestamp()))
       and (%(entity_type)s::text is null or entity_type = %(entity_type)s)
       and status = 'pending'
     order by abandoned_count, seq limit %(limit)s
       for no key update skip locked
),
-- include: _take

-- name: _mine
-- The rows of this batch that are still ours, locked in id order: other orders deadlocked in 18 of 60 races.
mine as materialized (
    select id from search_outbox_events
     where id = any (%(ids)s::uuid[]) and lease_token = %(token)s and status = 'processing'
     order by id
       for no key update
)

-- name: settle_done
-- processing -> done for a batch that went through as a whole: what nearly every batch is.
with
-- include: _mine
, settled as (
    update search_outbox_events e
       set status = 'done', processed_at = clock_timestamp(), updated_at = clock_timestamp(),
           owner = null, lease_until = null, processing_started_at = null, next_retry_at = null,
           error_reason = null, error_code = null, error = null, error_fingerprint = null,
           error_detail = null, dead_reason = null
     where e.id = any (array(select id from mine))
       and (select set_config('synchronous_commit', 'off', true)) is not null
    returning 1
), closed as (
    delete from search_outbox_leases where token = %(token)s
)
select count(*) from settled

-- name: settle
-- processing -> done | pending | failed, each row by its own verdict. A release gives the attempt back.
with verdict as materialized (
    select * from unnest(%(ids)s::uuid[], %(verdicts)s::text[], %(delays)s::float8[], %(reasons)s::text[],
                         %(codes)s::text[], %(errors)s::text[], %(fingerprints)s::text[], %(details)s::text[],
                         %(dead_reasons)s::text[], %(own)s::bool[])
        as v (id, verdict, delay, reason, code, error, fingerprint, detail, dead_reason, own)
),
-- include: _mine
, settled as (
    update search_outbox_events e
       set status = case when v.verdict in ('done', 'delete') then 'done'
                         when v.verdict = 'failed' then 'failed' else 'pending' end,
           op = case when v.verdict = 'delete' then 'delete' else e.op end,
           processed_at = case when v.verdict in ('done', 'delete') then clock_timestamp() end,
           failed_at = case when v.verdict = 'failed' then clock_timestamp() end,
           attempts = case when v.verdict = 'release' then greatest(e.attempts - 1, 0) else e.attempts end,
           next_retry_at = clock_timestamp() + make_interval(secs => v.delay),
           owner = null, lease_until = null, processing_started_at = null,
           error_reason = case when v.verdict = 'release' and v.reason is null then e.error_reason else v.reason end,
           error_code = case when v.verdict = 'release' and v.reason is null then e.error_code else v.code end,
           error = case when v.verdict = 'release' and v.reason is null then e.error else v.error end,
           error_fingerprint = case when v.verdict = 'release' and v.reason is null then e.error_fingerprint
                                    else v.fingerprint end,
           error_detail = case when v.verdict = 'failed' then v.detail::json end,
           dead_reason = v.dead_reason,
           updated_at = clock_timestamp()
      from verdict v
     where e.id = v.id
       and e.id = any (array(select id from mine))
       and (select set_config('synchronous_commit', 'off', true)) is not null
    returning e.id, e.attempts, e.replay_count
), noted as (
    insert into search_outbox_attempts (event_id, attempt, replay, at, worker, reason, code, error, detail)
    select s.id, s.attempts, s.replay_count, clock_timestamp(), %(owner)s, v.reason, v.code, v.error, v.detail::json
      from settled s join verdict v using (id)
     where v.own
), closed as (
    delete from search_outbox_leases where token = %(token)s
)
select count(*) from settled

-- name: lost
-- Which of these rows are no longer this token's: neither held by it nor finished by it.
select w.id
  from unnest(%(ids)s::uuid[]) as w (id)
 where not exists (
        select from search_outbox_events e
         where e.id = w.id and e.lease_token = %(token)s
           and (e.status in ('processing', 'done', 'failed') or (e.status = 'pending' and e.next_retry_at is not null)))

-- name: renew
-- processing -> processing: the lease of a batch that is still moving. Rows that someone holds are left for the next beat.
with mine as materialized (
    select id from search_outbox_events
     where id = any (%(ids)s::uuid[]) and lease_token = %(token)s and status = 'processing'
     order by id
       for no key update skip locked
), renewed as (
    update search_outbox_events e
       set lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp()
     where e.id = any (array(select id from mine))
       and (select set_config('synchronous_commit', 'off', true)) is not null
), extended as (
    update search_outbox_leases set lease_until = clock_timestamp() + %(lease)s where token = %(token)s
    returning 1
)
select count(*) from extended

-- name: release_token
-- processing -> pending for all that a lease still holds: the last act of a drain. The attempt is given back.
with held as materialized (
    select e.id from search_outbox_leases l
      join search_outbox_events e on e.id = any (l.ids)
     where l.token = %(token)s and e.lease_token = %(token)s and e.status = 'processing'
     order by e.id
       for no key update of e
), released as (
    update search_outbox_events e
       set status = 'pending', attempts = greatest(e.attempts - 1, 0),
           owner = null, lease_until = null, processing_started_at = null, updated_at = clock_timestamp()
     where e.id = any (array(select id from held))
    returning 1
), closed as (
    delete from search_outbox_leases where token = %(token)s
)
select count(*) from released

-- name: payloads
-- Payloads that were too large to come with the claim.
select id, payload from search_outbox_events where id = any (%(ids)s::uuid[])

-- name: newer_deletes
-- For events out of claim order: the newest done delete of the same entity that is newer than the event.
select w.id, d.event_version, d.routing
  from unnest(%(ids)s::uuid[], %(types)s::text[], %(entities)s::text[], %(versions)s::bigint[], %(seqs)s::bigint[])
       as w (id, entity_type, entity_id, event_version, seq)
 cross join lateral (
        select d.event_version, d.routing from search_outbox_events d
         where d.op = 'delete'
           and d.entity_type = w.entity_type
           and d.entity_id = w.entity_id::{entity_id_type}
           and d.event_version >= w.event_version
           and (d.event_version > w.event_version or d.seq > w.seq)
           and d.status = 'done'
         order by d.event_version desc, d.seq desc
         limit 1) d

-- name: entity_id_type
-- The type of entity_id as this table has it.
select format_type(atttypid, null) from pg_attribute
 where attrelid = 'search_outbox_events'::regclass and attname = 'entity_id'

-- name: open_types
-- Entity types that have open rows now, by hops over the twin index: its cost grows with the types, not with the rows.
with recursive hop as (
    (select entity_type from search_outbox_events
      where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
      order by entity_type limit 1)
    union all
    select (select e.entity_type from search_outbox_events e
             where e.processed_at is null and e.failed_at is null and e.next_retry_at is null
               and e.abandoned_count = 0 and e.entity_type > hop.entity_type
             order by e.entity_type limit 1)
      from hop where hop.entity_type is not null
), due_hop as (
    (select entity_type from search_outbox_events
      where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
      order by entity_type limit 1)
    union all
    select (select e.entity_type from search_outbox_events e
             where e.processed_at is null and e.failed_at is null and e.next_retry_at is not null
               and e.abandoned_count = 0 and e.entity_type > due_hop.entity_type
             order by e.entity_type limit 1)
      from due_hop where due_hop.entity_type is not null
), suspect as (
    select distinct entity_type from (
        select entity_type from search_outbox_events
         where processed_at is null and failed_at is null and abandoned_count > 0
         order by abandoned_count, seq limit 1000) s
)
select entity_type from hop where entity_type is not null
union select entity_type from due_hop where entity_type is not null
union select entity_type from suspect
limit 1000

-- name: lock_quota
-- Locks the type's quota: most in flight over all workers, and the token bucket (a burst of one second, one event at least).
select q.max_in_flight, q.rate,
       least(greatest(q.rate, 1),
             q.tokens + q.rate * extract(epoch from clock_timestamp() - q.refilled_at)::float8) as tokens
  from search_outbox_quotas q where q.entity_type = %(entity_type)s
   for no key update

-- name: in_flight
-- How many events of a type are claimed now, over all workers: counted from the leases, one row a batch.
select coalesce(sum((counts ->> %(entity_type)s)::int), 0)::int from search_outbox_leases
 where counts ? %(entity_type)s

-- name: spend_quota
-- Takes n tokens out of the bucket, after the claim said how many it needs.
update search_outbox_quotas
   set tokens = %(tokens)s - %(n)s, refilled_at = clock_timestamp()
 where entity_type = %(entity_type)s

-- name: put_quota
-- The limits as this daemon's settings have them; the last one started wins.
insert into search_outbox_quotas (entity_type, max_in_flight, rate, tokens, refilled_at)
values (%(entity_type)s, %(max_in_flight)s, %(rate)s, coalesce(%(rate)s, 0), clock_timestamp())
on conflict (entity_type) do update
   set max_in_flight = excluded.max_in_flight, rate = excluded.rate
