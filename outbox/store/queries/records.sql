-- Rows for a stream's records: what is no plain success, and deletes that were done.

-- name: store
-- done -> pending | failed for rows that are there, and new rows that are pending, failed or done. A row is known by its
-- event's id and by its record's key; what is there decides:
--   pending, failed, discarded   nothing changes: it is tried again, or a person has it or has decided
--   done                         opened again: the index was asked now, and has not taken it. It was lost or made anew
--   processing                   another row: its lane may have had its answer before the index was lost
--   another event's              another row, likewise for a delete that is done now and not there
-- Another row has an id of its own, made from the record's key; a key that another row has is completed by the id. All of
-- these rows are locked first, so that none is settled or pruned meanwhile. Repeated, the statement changes nothing.
-- A pending row has a token, so that its claim knows that it was sent before. The commit waits for the disk, as a settle's
-- need not: the offset passes only because the row is there.
with given as materialized (
    select g.*, md5(g.key || ':' || g.id)::uuid as other_id from json_to_recordset(%(rows)s::json)
        as g (place int, id uuid, key text, entity_type text, entity_id text, op text, event_version bigint, routing text,
              traceparent text, occurred_at float8, status text, attempts int, abandoned int, delay float8,
              reason text, code text, error text, fingerprint text, dead_reason text, detail json, own boolean)
), there as materialized (
    select id, status, entity_type, entity_id, op, event_version from search_outbox_events
     where id = any (array(select id from given union select other_id from given))
       and (select set_config('lock_timeout', '2s', true)) is not null
     order by id
       for no key update
), named as materialized (
    select g.*,
           case when exists (
               select from there o
                where o.id = g.id
                  and (row(o.entity_type, o.entity_id::text, o.op, o.event_version)
                       is distinct from row(g.entity_type, (g.entity_id::{entity_id_type})::text, g.op, g.event_version)
                       or (g.status = 'done' and o.status <> 'done')
                       or (g.status <> 'done' and o.status = 'processing')))
                then g.other_id else g.id end as row_id
      from given g
), reopened as (
    update search_outbox_events e
       set status = n.status, attempts = n.attempts, abandoned_count = n.abandoned, lease_token = gen_random_uuid(),
           last_attempt_at = clock_timestamp(), updated_at = clock_timestamp(), processed_at = null,
           failed_at = case n.status when 'failed' then clock_timestamp() end,
           next_retry_at = clock_timestamp() + make_interval(secs => n.delay),
           error_reason = n.reason, error_code = n.code, error = n.error, error_fingerprint = n.fingerprint,
           dead_reason = n.dead_reason, error_detail = n.detail
      from (select distinct on (row_id) * from named order by row_id, place) n
     where e.id = n.row_id and e.status = 'done' and n.status <> 'done'
    returning e.id, e.attempts, e.replay_count
), stored as (
    insert into search_outbox_events
        (id, idempotency_key, entity_type, entity_id, op, event_version, payload, routing, traceparent, created_at,
         status, attempts, abandoned_count, lease_token, last_attempt_at, processed_at, failed_at, next_retry_at,
         error_reason, error_code, error, error_fingerprint, dead_reason, error_detail)
    select n.row_id,
           case when exists (select from search_outbox_events o where o.idempotency_key = n.key and o.id <> n.row_id)
                then n.key || ':' || n.row_id else n.key end,
           n.entity_type, n.entity_id::{entity_id_type}, n.op, n.event_version,
           (%(payloads)s::text[])[n.place]::json, n.routing, n.traceparent,
           coalesce(to_timestamp(n.occurred_at), clock_timestamp()),
           n.status, n.attempts, n.abandoned, case n.status when 'pending' then gen_random_uuid() end,
           clock_timestamp(),
           case n.status when 'done' then clock_timestamp() end,
           case n.status when 'failed' then clock_timestamp() end,
           clock_timestamp() + make_interval(secs => n.delay),
           n.reason, n.code, n.error, n.fingerprint, n.dead_reason, n.detail
      from named n
     order by n.place
    on conflict do nothing
    returning id, attempts, 0 as replay_count
), noted as (
    insert into search_outbox_attempts (event_id, attempt, replay, at, worker, reason, code, error, detail)
    select s.id, s.attempts, s.replay_count, clock_timestamp(), %(owner)s, n.reason, n.code, n.error, n.detail
      from (select * from stored union all select * from reopened) s join named n on n.row_id = s.id
     where n.own
    on conflict do nothing
)
select count(*) from named

-- name: newer_deletes
-- Reads: newer deletes of upserts that are no rows, by their place. Of one version only a delete that is a row after the
-- upsert counts, which nobody can say of a record: its partition has them in order.
select w.place::int, d.event_version, d.routing
  from (select c.entity_type, c.entity_id, c.routing, c.version::bigint, c.place
          from rows from (json_array_elements_text(%(types)s::json), json_array_elements_text(%(entities)s::json),
                          json_array_elements_text(%(routings)s::json), json_array_elements_text(%(versions)s::json))
               with ordinality as c (entity_type, entity_id, routing, version, place))
       as w (entity_type, entity_id, routing, event_version, place)
 cross join lateral (
        select d.event_version, d.routing from search_outbox_events d
         where d.op = 'delete'
           and d.entity_type = w.entity_type
           and hashtextextended(d.entity_id::text, 0)
             = hashtextextended((w.entity_id::{entity_id_type})::text, 0)
           and d.entity_id::text = (w.entity_id::{entity_id_type})::text
           and d.routing is not distinct from w.routing
           and d.event_version > w.event_version
           and d.status in ('done', 'processing')
         order by d.event_version desc
         limit 1) d

-- name: database
-- Reads: this database's id, which the records of its event log name.
select search_outbox_database()

-- name: may_store
-- Reads: whether this role may write rows, which no projector without a stream needs to.
select has_table_privilege('search_outbox_events', 'insert')

-- name: limited
-- Reads: columns that a table which was there before us keeps short. An op that says why a record is no event is longer.
select coalesce(array_agg(attname::text order by attnum), '{}') from pg_attribute
 where attrelid = 'search_outbox_events'::regclass and atttypmod <> -1
   and attname in ('entity_type', 'op', 'routing', 'idempotency_key', 'traceparent')

-- name: now
-- Reads: the database's clock, in seconds since 1970.
select extract(epoch from clock_timestamp())::float8

-- name: foreign
-- Reads: an exception of another Kafka group that is still to be written. A topic's name has neither `@` nor `:`, so what
-- follows the first `@` of a key is the group, and an id where the key was taken; older keys have none.
select id, idempotency_key from search_outbox_events
 where processed_at is null
   and idempotency_key like 'kafka:%%@%%'
   and regexp_replace(substr(idempotency_key, strpos(idempotency_key, '@') + 1), ':[0-9a-f-]{36}$', '') <> %(group)s
 limit 1

-- name: unseen
-- Reads: transactions whose changes a snapshot of now does not see, although a connector has read their commit: who
-- commits is taken out of the list of running transactions after a synchronous standby has answered. A number that no
-- transaction of this server holds is another server's, and nobody waits for it.
select x from unnest(%(transactions)s::bigint[]) as x
 where not pg_visible_in_snapshot(x::text::xid8, pg_current_snapshot())
   and exists (select from pg_locks l
                where l.locktype = 'transactionid' and l.granted and l.mode = 'ExclusiveLock'
                  and l.transactionid = x::text::xid8::xid)

-- name: topic_before
-- Notes under which id a worker reads its topic. Reads the id that it or another worker of its group has read before: the
-- statement's own snapshot still has what was there.
with noted as (
    update search_outbox_workers set stream = %(stream)s, topic_id = %(topic_id)s where worker_id = %(owner)s
)
select topic_id from search_outbox_workers where stream = %(stream)s and topic_id is not null
 order by worker_id = %(owner)s desc, heartbeat_at desc limit 1
