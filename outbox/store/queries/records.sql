-- Rows for a stream's records: what is no plain success, and deletes that were done.

-- name: store
-- Writes rows that are pending, failed or done. Repeated, it changes nothing: a row is known by its event's id and by its
-- record's key. A key that another event has is of a topic that was made anew: then the id makes it a key of its own, or
-- the record would be lost without a word. Likewise an id that another event has, or this one in a row that is not done
-- while it is now: then the record's key makes another id. A pending row has a token, so that its claim knows that it was sent before.
-- Its commit waits for the disk, as a settle's need not: the offset passes only because the row is there.
with given as materialized (
    select * from json_to_recordset(%(rows)s::json)
        as g (place int, id uuid, key text, entity_type text, entity_id text, op text, event_version bigint, routing text,
              traceparent text, occurred_at float8, status text, attempts int, abandoned int, delay float8,
              reason text, code text, error text, fingerprint text, dead_reason text, detail json, own boolean)
), named as (
    select g.*,
           case when exists (
               select from search_outbox_events o
                where o.id = g.id
                  and (row(o.entity_type, o.entity_id::text, o.op, o.event_version)
                       is distinct from row(g.entity_type, (g.entity_id::{entity_id_type})::text, g.op, g.event_version)
                       or (g.status = 'done' and o.status <> 'done')))
                then md5(g.key || ':' || g.id)::uuid else g.id end as row_id
      from given g
), stored as (
    insert into search_outbox_events
        (id, idempotency_key, entity_type, entity_id, op, event_version, payload, routing, traceparent, created_at,
         status, attempts, abandoned_count, lease_token, last_attempt_at, processed_at, failed_at, next_retry_at,
         error_reason, error_code, error, error_fingerprint, dead_reason, error_detail)
    select g.row_id,
           case when exists (select from search_outbox_events o where o.idempotency_key = g.key and o.id <> g.row_id)
                then g.key || ':' || g.row_id else g.key end,
           g.entity_type, g.entity_id::{entity_id_type}, g.op, g.event_version,
           (%(payloads)s::text[])[g.place]::json, g.routing, g.traceparent,
           coalesce(to_timestamp(g.occurred_at), clock_timestamp()),
           g.status, g.attempts, g.abandoned, case g.status when 'pending' then gen_random_uuid() end,
           clock_timestamp(),
           case g.status when 'done' then clock_timestamp() end,
           case g.status when 'failed' then clock_timestamp() end,
           clock_timestamp() + make_interval(secs => g.delay),
           g.reason, g.code, g.error, g.fingerprint, g.dead_reason, g.detail
      from named g
     order by g.place
    on conflict do nothing
    returning id, attempts
), noted as (
    insert into search_outbox_attempts (event_id, attempt, replay, at, worker, reason, code, error, detail)
    select s.id, s.attempts, 0, clock_timestamp(), %(owner)s, g.reason, g.code, g.error, g.detail
      from stored s join named g on g.row_id = s.id
     where g.own
)
select count(*) from stored

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
