-- Claim and settle: the hot path. Predicates that an index needs stand here as literals: as parameters they gave a
-- Seq Scan.

-- name: _take
-- pending -> processing for the rows in `picked`; the lease row is written by the same statement. The update stands last
-- and not in a CTE, whose rows would be kept, payloads and all, to be read twice (1.2 us per event). So the lease is
-- written from what was locked: a row that was changed by hand in that moment is in it, stays pending and is never ours.
-- Whatever a producer wrote must pass: counts are held inside their type, and names that are far too long come cut (they
-- are refused afterwards), so that one row can neither stop a claim nor fill the memory. pg_column_size reads no text.
leased as (
    insert into search_outbox_leases (token, owner, start_id, lease_until, ids, counts, revision)
    select %(token)s, %(owner)s, %(start_id)s, clock_timestamp() + %(lease)s, array_agg(id),
           (select jsonb_object_agg(left(entity_type, 600), n)
              from (select entity_type, count(*) as n from picked group by entity_type) by_type),
           (select revision from search_outbox_types_revision)
      from picked
     where (select set_config('synchronous_commit', 'off', true)) is not null
    having count(*) > 0
)
update search_outbox_events e
   set status = 'processing',
       owner = %(owner)s,
       lease_token = %(token)s,
       lease_until = (select clock_timestamp()) + %(lease)s,
       processing_started_at = (select clock_timestamp()),
       last_attempt_at = (select clock_timestamp()),
       next_retry_at = null,
       attempts = least(greatest(attempts, 0), 2147483646) + 1,
       updated_at = (select clock_timestamp())
 where e.ctid = any (array(select ctid from picked))
   and e.status = 'pending'
returning e.id, e.seq,
          case when pg_column_size(e.entity_type) > 2400 then left(e.entity_type, 2400) else e.entity_type end as entity_type,
          case when pg_column_size(e.entity_id) > 2400 then left(e.entity_id::text, 2400)
               else e.entity_id::text end as entity_id,
          case when pg_column_size(e.op) > 2400 then left(e.op, 2400) else e.op end as op,
          e.event_version,
          case when pg_column_size(e.payload) < %(inline_bytes)s
                and (pg_column_compression(e.payload) is null or octet_length(e.payload::text) < %(inline_bytes)s)
               then e.payload::json end as payload,
          case when pg_column_compression(e.payload) is null then pg_column_size(e.payload)
               else octet_length(e.payload::text) end as payload_bytes,
          case when pg_column_size(e.routing) > 2400 then left(e.routing, 2400) else e.routing end as routing,
          e.attempts, e.max_attempts, e.abandoned_count, e.replay_count,
          (select bool_or(retried) from picked) as retried,
          case when isfinite(e.created_at) then date_part('epoch', (select clock_timestamp()) - e.created_at)
               else -1 end as age_seconds,
          case when pg_column_size(e.traceparent) > 2400 then left(e.traceparent, 2400) else e.traceparent end as traceparent,
          (select revision from search_outbox_types_revision) as revision

-- name: claim
-- pending -> processing: due retries up to retry_limit, then fresh rows by seq. Two scans, never an OR over both. A row
-- that was given back differs from a fresh one only in its last token: it may be out of claim order.
with due as materialized (
    select ctid, id, entity_type from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
       and next_retry_at <= (select clock_timestamp())
       and status = 'pending'
     order by next_retry_at limit %(retry_limit)s
       for no key update skip locked
), fresh as materialized (
    select ctid, id, entity_type, lease_token is not null as again from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
       and seq >= %(floor)s
       and status = 'pending'
     order by seq limit %(limit)s - (select count(*) from due)
       for no key update skip locked
), picked as materialized (
    select ctid, id, entity_type, true as retried from due union all select ctid, id, entity_type, again from fresh
),
-- include: _take

-- name: claim_of_type
-- pending -> processing for one entity type, over the twins that `outbox migrate --by-type` adds. `abandoned_count < 1`
-- is the twins' own spelling: with `= 0` the planner may take the plain index and filter, and then a type behind 100,000
-- others reads past all of them at every claim (met at a generic plan).
with due as materialized (
    select ctid, id, entity_type from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count < 1
       and entity_type = %(entity_type)s
       and next_retry_at <= (select clock_timestamp())
       and status = 'pending'
     order by next_retry_at limit %(retry_limit)s
       for no key update skip locked
), fresh as materialized (
    select ctid, id, entity_type, lease_token is not null as again from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count < 1
       and entity_type = %(entity_type)s
       and seq >= %(floor)s
       and status = 'pending'
     order by seq limit %(limit)s - (select count(*) from due)
       for no key update skip locked
), picked as materialized (
    select ctid, id, entity_type, true as retried from due union all select ctid, id, entity_type, again from fresh
),
-- include: _take

-- name: claim_suspects
-- pending -> processing for rows whose worker died before: few at a time, so that the one at fault is found.
with picked as materialized (
    select ctid, id, entity_type, true as retried from search_outbox_events
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
-- The rows of this batch that are still ours. Whoever moves claimed rows locks their lease first, and waits for nothing
-- else: a row that someone holds is left in the lease, so that a person who is idle in a transaction holds up that row and
-- no other, nor a heartbeat. The lease is taken away at once and comes back with what remains, which is seldom: to lock it
-- and to delete it cost 0.4 us per event more. It knows the ids, so none travel: 500 of them cost 25 us per event to send
-- (measured). `only` names a part of them, where the whole could not be written. `settles`: not if an entity type was
-- declared otherwise since the claim; then nothing changes, and the batch is done again.
held as (
    delete from search_outbox_leases
     where token = %(token)s and (select set_config('lock_timeout', '2s', true)) is not null
    returning *
), mine as materialized (
    select id from search_outbox_events
     where id = any (array(select unnest(coalesce(%(only)s::uuid[], ids)) from held))
       and lease_token = %(token)s and status = 'processing'
       and (not %(settles)s or (select revision from held) = (select revision from search_outbox_types_revision))
     order by id
       for no key update skip locked
), remaining as materialized (
    select id, entity_type from search_outbox_events
     where (select count(*) from mine) < (select cardinality(ids) from held)
       and id = any (array(select unnest(ids) from held)) and lease_token = %(token)s and status = 'processing'
       and id <> all (array(select id from mine))
), kept_lease as (
    insert into search_outbox_leases (token, owner, start_id, lease_until, started_at, ids, counts, revision)
    select token, owner, start_id, lease_until, started_at, array(select id from remaining),
           (select jsonb_object_agg(left(entity_type, 600), n)
              from (select entity_type, count(*) as n from remaining group by entity_type) by_type), revision from held
     where exists (select from remaining)
)

-- name: _kept
-- How many rows were settled, and which only where some were not: then the others were lost, busy, or settled before.
-- Last, whether a declaration has changed.
select (select count(*) from settled),
       case when (select count(*) from settled) < %(expected)s then (select array_agg(id) from settled) end,
       exists (select from held where revision is distinct from (select revision from search_outbox_types_revision))

-- name: settle_done
-- processing -> done for a batch that went through as a whole: what nearly every batch is.
with
-- include: _mine
, settled as (
    update search_outbox_events e
       set status = 'done', processed_at = clock_timestamp(), updated_at = clock_timestamp(),
           owner = null, lease_until = null, processing_started_at = null, next_retry_at = null,
           error_reason = null, error_code = null, error = null, error_fingerprint = null,
           error_detail = null, dead_reason = null,
           read_version = case op when 'refresh' then %(drawn)s::bigint end,
           read_found = case op when 'refresh' then true end
     where e.id = any (array(select id from mine))
       and (select set_config('synchronous_commit', 'off', true)) is not null
    returning e.id
)
-- include: _kept

-- name: settle
-- processing -> done | pending | failed, each row by its own verdict; one without a verdict is done. A release gives
-- the attempt back and, without a reason of its own, leaves the last error where it was.
with verdict as materialized (
    select * from json_to_recordset(%(verdicts)s::json)
        as v (id uuid, verdict text, delay float8, reason text, code text, error text, fingerprint text, detail json,
              dead_reason text, own boolean, drawn bigint)
),
-- include: _mine
, judged as materialized (
    select m.id, coalesce(v.verdict, 'done') as verdict, v.delay, v.reason, v.code, v.error, v.fingerprint, v.detail,
           v.dead_reason, coalesce(v.own, false) as own, coalesce(v.drawn, %(drawn)s::bigint) as drawn,
           v.verdict is not distinct from 'release' and v.reason is null as keeps_error
      from mine m left join verdict v using (id)
), settled as (
    update search_outbox_events e
       set status = case when j.verdict in ('done', 'gone') then 'done'
                         when j.verdict = 'failed' then 'failed' else 'pending' end,
           processed_at = case when j.verdict in ('done', 'gone') then clock_timestamp() end,
           failed_at = case j.verdict when 'failed' then clock_timestamp() end,
           attempts = case j.verdict when 'release' then greatest(e.attempts - 1, 0) else e.attempts end,
           next_retry_at = clock_timestamp() + make_interval(secs => j.delay),
           owner = null, lease_until = null, processing_started_at = null,
           error_reason = case when j.keeps_error then e.error_reason else j.reason end,
           error_code = case when j.keeps_error then e.error_code else j.code end,
           error = case when j.keeps_error then e.error else j.error end,
           error_fingerprint = case when j.keeps_error then e.error_fingerprint else j.fingerprint end,
           error_detail = case j.verdict when 'failed' then j.detail end,
           dead_reason = j.dead_reason,
           read_version = case when e.op = 'refresh' and j.verdict in ('done', 'gone') then j.drawn
                               else e.read_version end,
           read_found = case when e.op = 'refresh' and j.verdict in ('done', 'gone') then j.verdict = 'done'
                             else e.read_found end,
           updated_at = clock_timestamp()
      from judged j
     where e.id = j.id
       and e.id = any (array(select id from mine))
       and (select set_config('synchronous_commit', 'off', true)) is not null
    returning e.id, e.attempts, e.replay_count
), noted as (
    insert into search_outbox_attempts (event_id, attempt, replay, at, worker, reason, code, error, detail)
    select s.id, s.attempts, s.replay_count, clock_timestamp(), %(owner)s, j.reason, j.code, j.error, j.detail
      from settled s join judged j using (id)
     where j.own
    on conflict do nothing
)
-- include: _kept

-- name: unsettled
-- Which of these rows this token has not finished: busy where it still holds them, else lost to others.
select w.id, e.id is not null as busy
  from unnest(%(ids)s::uuid[]) as w (id)
  left join search_outbox_events e on e.id = w.id and e.lease_token = %(token)s and e.status = 'processing'
 where e.id is not null
    or not exists (
        select from search_outbox_events e
         where e.id = w.id and e.lease_token = %(token)s
           and (e.status in ('done', 'failed') or (e.status = 'pending' and e.next_retry_at is not null)))

-- name: no_long_waits
-- Before a statement, so that it holds for the locks of tables too.
select set_config('lock_timeout', '1s', true)

-- name: renew
-- processing -> processing: the lease of a batch that is still moving. Rows that someone holds are left for the next beat.
-- One moment for the lease and its rows: the reclaimer goes by the lease, and must find no row that says later.
with extended as (
    update search_outbox_leases set lease_until = clock_timestamp() + %(lease)s where token = %(token)s
    returning ids, lease_until
), mine as materialized (
    select id from search_outbox_events
     where id = any (array(select unnest(ids) from extended)) and lease_token = %(token)s and status = 'processing'
     order by id
       for no key update skip locked
), renewed as (
    update search_outbox_events e
       set lease_until = (select lease_until from extended), updated_at = clock_timestamp()
     where e.id = any (array(select id from mine))
       and (select set_config('synchronous_commit', 'off', true)) is not null
)
select count(*) from extended

-- name: release_token
-- processing -> pending for all that a lease still holds: the last act of a drain. The attempt is given back.
with
-- include: _mine
, released as (
    update search_outbox_events e
       set status = 'pending', attempts = greatest(e.attempts - 1, 0),
           owner = null, lease_until = null, processing_started_at = null, updated_at = clock_timestamp()
     where e.id = any (array(select id from mine))
    returning 1
)
select (select count(*) from released), (select count(*) from remaining)

-- name: abandon
-- processing -> pending | failed for rows whose work ended in an error that is nobody's outage. It counts as a death of
-- their worker: they are claimed apart, and the one at fault fails in the end. `last` null = not even that can be written:
-- again, after `delay`.
with
-- include: _mine
, back as (
    update search_outbox_events e
       set status = case when e.abandoned_count >= %(last)s::int then 'failed' else 'pending' end,
           failed_at = case when e.abandoned_count >= %(last)s::int then clock_timestamp() end,
           abandoned_count = least(greatest(e.abandoned_count, 0), 2147483646) + 1,
           next_retry_at = clock_timestamp() + make_interval(secs => %(delay)s::float8),
           error_reason = 'crash_suspect', error_code = 'OUTBOX_PRECONDITION_FAILED', error = %(error)s,
           error_fingerprint = %(fingerprint)s,
           error_detail = case when e.abandoned_count >= %(last)s::int then %(detail)s::json end,
           dead_reason = case when e.abandoned_count >= %(last)s::int then 'crash_suspect' end,
           owner = null, lease_until = null, processing_started_at = null, updated_at = clock_timestamp()
     where e.id = any (array(select id from mine))
    returning e.status
)
select (select count(*) from back), (select count(*) from back where status = 'failed')

-- name: payloads
-- Payloads that were too large to come with the claim. An adopted table may have jsonb, whose binary form is no text.
select id, payload::json from search_outbox_events where id = any (%(ids)s::uuid[])

-- name: deleted
-- Reads: of these entities, those that have a delete event.
select w.place::int
  from unnest(%(types)s::text[], %(entities)s::text[]) with ordinality as w (entity_type, entity_id, place)
 where exists (select from search_outbox_events d
                where d.op = 'delete' and d.entity_type = w.entity_type
                  and hashtextextended(d.entity_id::text, 0)
                    = hashtextextended((w.entity_id::{entity_id_type})::text, 0)
                  and d.entity_id = w.entity_id::{entity_id_type})

-- name: lately_done
-- Reads: entities of these types among the newest done events, without those that were gone; so many of each type. A
-- fan-out names none.
select id, entity_type, entity_id
  from (select id, entity_type, entity_id, row_number() over (partition by entity_type) as place
          from (select distinct on (entity_type, entity_id) id, entity_type, entity_id::text as entity_id
                  from (select id, entity_type, entity_id, op, read_found from search_outbox_events
                         where processed_at is not null order by processed_at desc limit 2000) newest
                 where entity_type = any (%(types)s::text[]) and op not in ('delete', 'fanout') and read_found is not false) entities) numbered
 where place <= %(most)s

-- name: refresh_again
-- New refreshes of entities whose rows are someone else's by now.
insert into search_outbox_events (entity_type, entity_id, op)
select distinct w.entity_type, w.entity_id::{entity_id_type}, 'refresh'
  from unnest(%(types)s::text[], %(entities)s::text[]) as w (entity_type, entity_id)

-- name: last_version
-- The highest version that was given out.
select last_value from search_outbox_version

-- name: catch_up
-- Raises the sequence above what rows say was given out, and gives open rows that it numbered too low new versions.
select was, given_out, renumbered from search_outbox_catch_up() where given_out is not null

-- name: raise_version
-- What the sequence was, if it has to be moved on.
select was.last_value, search_outbox_raise_version(%(seen)s)
  from (select last_value from search_outbox_version) was
 where was.last_value < %(seen)s

-- name: _newer_delete
-- The newest delete of the row `w`'s document that is newer than it, and done or in flight: one that was applied and
-- waits for its settle, for longer than Elasticsearch remembers it, is sent by nobody else again. Under another routing it
-- is another document.
cross join lateral (
        select d.event_version, d.routing from search_outbox_events d
         where d.op = 'delete'
           and d.entity_type = w.entity_type
           and hashtextextended(d.entity_id::text, 0) = hashtextextended(w.entity_id::text, 0)
           and d.entity_id = w.entity_id
           and d.routing is not distinct from w.routing
           and d.event_version >= w.event_version
           and (d.event_version > w.event_version or d.seq > w.seq)
           and d.status in ('done', 'processing')
         order by d.event_version desc, d.seq desc
         limit 1) d

-- name: newer_deletes
-- Reads: newer deletes of a batch's upserts. The lease names the rows; the line without an id says how many,
-- because a lease that was taken away names none, or a part.
select null::uuid as id, coalesce(sum(cardinality(ids)), 0)::bigint as event_version, null as routing
  from search_outbox_leases where token = %(token)s
union all
(select w.id, d.event_version, d.routing
  from search_outbox_leases l
  join search_outbox_events w on w.id = any (l.ids)
-- include: _newer_delete
 where l.token = %(token)s and w.op = 'upsert')

-- name: newer_deletes_of
-- Reads: the same for rows whose lease is gone: what their last worker wrote too late must be taken back all the same.
select w.id, d.event_version, d.routing
  from search_outbox_events w
-- include: _newer_delete
 where w.id = any (%(ids)s::uuid[]) and w.op = 'upsert'

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
  from search_outbox_quotas q
 where q.entity_type = %(entity_type)s and (select set_config('lock_timeout', '2s', true)) is not null
   for no key update

-- name: in_flight
-- How many events of a type are claimed now, over all workers: counted from the leases, one row per batch.
select coalesce(sum((counts ->> %(entity_type)s)::int), 0)::int from search_outbox_leases
 where counts ? %(entity_type)s

-- name: spend_quota
-- Takes n tokens out of the bucket, after the claim said how many it needs.
update search_outbox_quotas
   set tokens = %(tokens)s::real - %(n)s::int, refilled_at = clock_timestamp()
 where entity_type = %(entity_type)s

-- name: put_quota
-- The limits as this daemon's settings have them; the last one started wins.
insert into search_outbox_quotas (entity_type, max_in_flight, rate, tokens, refilled_at)
values (%(entity_type)s, %(max_in_flight)s, %(rate)s::real, coalesce(%(rate)s::real, 0), clock_timestamp())
on conflict (entity_type) do update
   set max_in_flight = excluded.max_in_flight, rate = excluded.rate
