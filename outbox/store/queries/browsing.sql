-- What people read: one event with all that is recorded about it.

-- name: _about
-- All of one event but its payload.
id, seq, entity_type, entity_id::text as entity_id, op, event_version,
       routing, idempotency_key, status, attempts, max_attempts, replay_count, abandoned_count,
       owner, lease_until, lease_token, processing_started_at, last_attempt_at, next_retry_at, processed_at, failed_at,
       error_reason, error_code, error, error_fingerprint, dead_reason, error_detail,
       last_replayed_at, last_replayed_by, last_replayed_reason, traceparent, tracestate, created_at, updated_at,
       read_version, read_found, fanout_attachment, fanout_cursor, fanout_written, fanout_id

-- name: show
-- Reads: one event. A payload over a megabyte is not shown, only its size.
select case when octet_length(payload::text) <= %(most_bytes)s then payload end as payload,
       octet_length(payload::text) as payload_bytes,
-- include: _about
  from search_outbox_events where id = %(id)s

-- name: show_without_payload
-- Reads: the same for a role that may not read payloads.
select '{"***": "this database role may not read payloads"}'::json as payload, 0 as payload_bytes,
-- include: _about
  from search_outbox_events where id = %(id)s

-- name: statuses
-- Reads: the states of some events, by their key.
select id, status from search_outbox_events where id = any (%(ids)s)

-- name: entity_states
-- Reads: whether events of some entities are open that were there at the first reading, which sets up to where. Fan-outs to
-- the type count, and so do the refreshes that they write since. Nothing where producers write to the event log: then the
-- table has the exceptions only.
select w.place::int, m.until,
       case when exists (select from search_outbox_events f
                          where f.op = 'fanout' and f.processed_at is null and f.failed_at is null
                            and f.entity_type = w.entity_type and f.seq <= m.until)
              or exists (select from search_outbox_events e
                          where e.processed_at is null and e.failed_at is null and e.op <> 'fanout'
                            and e.entity_type = w.entity_type and e.entity_id::text = w.entity_id
                            and (e.seq <= m.until
                                 or exists (select from search_outbox_events f
                                             where f.id = e.fanout_id and f.seq <= m.until)))
            then 'pending'
            when exists (select from search_outbox_events e
                          where e.failed_at is not null and e.entity_type = w.entity_type
                            and e.entity_id::text = w.entity_id)
            then 'failed'
            else 'done' end as status
  from unnest(%(types)s::text[], %(entities)s::text[], %(until)s::bigint[])
       with ordinality as w (entity_type, entity_id, until, place)
 cross join lateral (
        select coalesce(w.until, max(e.seq), 0) as until from search_outbox_events e
         where w.until is null and e.processed_at is null and e.failed_at is null
           and e.entity_type = w.entity_type and (e.op = 'fanout' or e.entity_id::text = w.entity_id)) m
 where to_regproc('search_outbox_enqueue_table') is null

-- name: attempts
-- Reads: the failed attempts of one event whose cause was the event itself, the newest first.
select attempt, replay, at, worker, reason, code, error, detail
  from search_outbox_attempts where event_id = %(id)s
 order by at desc limit %(most)s

-- name: acts
-- Reads: what people have done with one event, the newest first.
select at, action, actor, source, reason, batch_id
  from search_outbox_audit where event_id = %(id)s
 order by at desc limit %(most)s

-- name: _relation
-- What a list of related events shows and sorts by.
e.id, e.entity_type, e.entity_id, e.status, e.op, e.event_version, e.attempts, e.error_reason, e.created_at, e.failed_at,
e.processed_at

-- name: related
-- Reads: other events of the same entity (a fan-out is none of any entity): deletes and failed ones by their indexes, the newest open ones by a short scan.
with open_rows as (
    (select
-- include: _relation
       from search_outbox_events e
      where e.processed_at is null and e.failed_at is null and e.next_retry_at is null and e.abandoned_count = 0
      order by e.seq desc limit %(scan)s)
    union all
    (select
-- include: _relation
       from search_outbox_events e
      where e.processed_at is null and e.failed_at is null and e.next_retry_at is not null and e.abandoned_count = 0
      order by e.next_retry_at desc limit %(scan)s)
    union all
    (select
-- include: _relation
       from search_outbox_events e
      where e.processed_at is null and e.failed_at is null and e.abandoned_count > 0
      order by e.abandoned_count, e.seq limit %(scan)s)
), found as (
    select o.* from open_rows o
     where o.entity_type = %(entity_type)s and o.entity_id = %(entity_id)s::{entity_id_type}
    union all
    (select
-- include: _relation
       from search_outbox_events e
      where e.failed_at is not null
        and e.entity_type = %(entity_type)s and e.entity_id = %(entity_id)s::{entity_id_type}
      order by e.event_version desc limit %(most)s)
    union all
    (select
-- include: _relation
       from search_outbox_events e
      where e.op = 'delete' and e.processed_at is not null
        and hashtextextended(e.entity_id::text, 0) = hashtextextended((%(entity_id)s::{entity_id_type})::text, 0)
        and e.entity_type = %(entity_type)s and e.entity_id = %(entity_id)s::{entity_id_type}
      order by e.event_version desc limit %(most)s)
)
select id, status, op, event_version, attempts, error_reason, created_at, failed_at, processed_at
  from found where id <> %(id)s and op <> 'fanout'
 order by event_version desc, created_at desc limit %(most)s

-- name: related_by_index
-- Reads: the same over the index that `outbox migrate --by-entity` adds, done events included.
select id, status, op, event_version, attempts, error_reason, created_at, failed_at, processed_at
  from search_outbox_events
 where entity_type = %(entity_type)s and entity_id = %(entity_id)s::{entity_id_type} and id <> %(id)s
   and op <> 'fanout'
 order by event_version desc, created_at desc limit %(most)s

-- name: _listed
-- The columns of a list; no payload.
e.id, e.seq, e.entity_type, e.entity_id::text as entity_id, e.op, e.event_version, e.status, e.attempts, e.max_attempts,
e.replay_count, e.abandoned_count, e.routing, e.idempotency_key, e.owner, e.lease_until, e.processing_started_at,
e.last_attempt_at, e.next_retry_at, e.processed_at, e.failed_at, e.error_reason, e.error_code, e.error,
e.error_fingerprint, e.dead_reason, e.last_replayed_at, e.last_replayed_by, e.last_replayed_reason, e.traceparent,
e.created_at, e.updated_at, e.read_version, e.read_found, e.fanout_attachment, e.fanout_cursor, e.fanout_written, e.fanout_id

-- name: list_open
-- Reads: a page of open events, the newest first by seq. Retries and suspects are few, or sorted within the time limit.
select * from (
    (select
-- include: _listed
       from search_outbox_events e
      where e.processed_at is null and e.failed_at is null and e.next_retry_at is null and e.abandoned_count = 0
        and e.status = any (%(statuses)s::text[]) and e.seq < %(before_seq)s /* and filter by created_at */
      order by e.seq desc limit %(limit)s)
    union all
    (select
-- include: _listed
       from search_outbox_events e
      where e.processed_at is null and e.failed_at is null and e.next_retry_at is not null and e.abandoned_count = 0
        and e.status = any (%(statuses)s::text[]) and e.seq < %(before_seq)s /* and filter by created_at */
      order by e.seq desc limit %(limit)s)
    union all
    (select
-- include: _listed
       from search_outbox_events e
      where e.processed_at is null and e.failed_at is null and e.abandoned_count > 0
        and e.status = any (%(statuses)s::text[]) and e.seq < %(before_seq)s /* and filter by created_at */
      order by e.seq desc limit %(limit)s)) page
 order by seq desc limit %(limit)s

-- name: list_failed
-- Reads: a page of failed events, the newest failure first.
select e.error_detail,
-- include: _listed
  from search_outbox_events e
 where e.failed_at is not null and (e.failed_at, e.id) < (%(before_at)s::timestamptz, %(before_id)s::uuid) /* and filter */
 order by e.failed_at desc, e.id desc limit %(limit)s

-- name: list_done
-- Reads: a page of done events, the newest first.
select
-- include: _listed
  from search_outbox_events e
 where e.processed_at is not null and e.status = 'done'
   and (e.processed_at, e.id) < (%(before_at)s::timestamptz, %(before_id)s::uuid) /* and filter by processed_at */
 order by e.processed_at desc, e.id desc limit %(limit)s

-- name: list_discarded
-- Reads: a page of discarded events, the newest first, by their own list.
select
-- include: _listed
  from search_outbox_discards d
  join search_outbox_events e on e.id = d.event_id
 where (e.processed_at, e.id) < (%(before_at)s::timestamptz, %(before_id)s::uuid) /* and filter by processed_at */
 order by e.processed_at desc, e.id desc limit %(limit)s

-- name: list_done_deletes
-- Reads: the done deletes of an entity, by their index: what is searched of an entity's done events without its own.
select
-- include: _listed
  from search_outbox_events e
 where e.op = 'delete' and e.processed_at is not null and e.status = 'done'
   and hashtextextended(e.entity_id::text, 0) = hashtextextended(%(id_text)s::text, 0)
   and (e.processed_at, e.id) < (%(before_at)s::timestamptz, %(before_id)s::uuid) /* and filter by processed_at */
 order by e.processed_at desc, e.id desc limit %(limit)s
