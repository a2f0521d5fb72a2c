-- What PostgreSQL says the index should hold: page by page in key order, each page a snapshot of its own. The view is
-- walked one entity type at a time, because a row comparison over a constant type cannot use its table's index.

-- name: view_types
-- The entity types of the view: one pass over it that builds no document.
select distinct entity_type from {view} where entity_type is not null order by 1 limit %(most)s

-- name: view_keys
-- A page of one type's keys, from the first or after one. By the view's own column: a bare name would mean the text in the
-- list.
select {id_text} from {view} d
 where d.entity_type = %(entity_type)s and {beyond} and ({condition}
)
 order by {order} limit %(limit)s

-- name: view_present
-- Which of these entities the view has; no document is built.
select w.place::int
  from unnest(%(types)s::text[], %(ids)s::text[]) with ordinality as w (entity_type, entity_id, place)
 where exists (select from {view} d where d.entity_type = w.entity_type
                and {id} operator({id_ops}.=) w.entity_id::{id_type} and {id_text} = w.entity_id)

-- name: event_keys
-- A page of one type's keys, from the first or after one, by hops over the entity index: an entity with a million events
-- is one hop. The page ends with `until`, where that is given.
with recursive hop as (
    (select entity_id from search_outbox_events
      where entity_type = %(entity_type)s and {later} order by entity_id limit 1)
    union all
    select (select e.entity_id from search_outbox_events e
             where e.entity_type = %(entity_type)s and e.entity_id > hop.entity_id
             order by e.entity_id limit 1)
      from hop where hop.entity_id is not null
       and (%(until)s::text is null or hop.entity_id < %(until)s::text::{entity_id_type})
)
select entity_id::text from hop
 where entity_id is not null and (%(until)s::text is null or entity_id <= %(until)s::text::{entity_id_type})
 limit %(limit)s

-- name: newest
-- The newest event of each entity that counts: not one that a person discarded or that no worker understands. `done`: the
-- newest that is done, from which the index was made.
select w.place::int, n.op, n.event_version, n.routing,
       case when %(whole)s or octet_length(n.body) < 65536 then n.body end, octet_length(n.body)
  from unnest(%(types)s::text[], %(ids)s::text[]) with ordinality as w (entity_type, entity_id, place)
 cross join lateral (
        select e.op, e.event_version, e.routing, e.payload::text as body
          from search_outbox_events e
         where e.entity_type = w.entity_type and e.entity_id = w.entity_id::{entity_id_type}
           and e.status <> 'discarded' and (e.status = 'done' or not %(done)s) and e.op in ('upsert', 'delete')
         order by e.event_version desc, e.seq desc nulls last limit 1) n

-- name: events_present
-- Which of these entities should have a document, by the op of their newest event.
select w.place::int
  from unnest(%(types)s::text[], %(ids)s::text[]) with ordinality as w (entity_type, entity_id, place)
 cross join lateral (
        select e.op from search_outbox_events e
         where e.entity_type = w.entity_type and e.entity_id = w.entity_id::{entity_id_type}
           and e.status <> 'discarded' and e.op in ('upsert', 'delete')
         order by e.event_version desc, e.seq desc nulls last limit 1) n
 where n.op = 'upsert'

-- name: _fanning
-- Types of which a fan-out is open: nobody knows yet whom it touches, so each of their entities may have an event to come.
fanning as materialized (
    select distinct entity_type
      from (select entity_type from search_outbox_events
             where op = 'fanout' and processed_at is null and failed_at is null order by seq limit 10000) open_fanouts
)

-- name: open_of
-- Which of these entities have an open event now, or may soon, by the entity index. A limit keeps the planner from joining:
-- it read the whole table.
with
-- include: _fanning
select w.place::int
  from unnest(%(types)s::text[], %(ids)s::text[]) with ordinality as w (entity_type, entity_id, place)
 cross join lateral (
        (select from search_outbox_events e
          where e.entity_type = w.entity_type and e.entity_id = w.entity_id::{entity_id_type} and e.op <> 'fanout'
            and e.processed_at is null and e.failed_at is null limit 1)
        union all
        (select from fanning f where f.entity_type = w.entity_type)
        limit 1) o

-- name: open_of_backlog
-- The same without it: all open events up to a limit per scan. A first row with place 0 says that there are more.
with
-- include: _fanning
, backlog as materialized (
    (select entity_type, entity_id, op from search_outbox_events
      where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
      order by seq limit %(most)s)
    union all
    (select entity_type, entity_id, op from search_outbox_events
      where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
      order by next_retry_at limit %(most)s)
    union all
    (select entity_type, entity_id, op from search_outbox_events
      where processed_at is null and failed_at is null and abandoned_count > 0
      order by abandoned_count, seq limit %(most)s)
)
select 0 as place where (select count(*) from backlog) >= %(most)s
union all
select distinct w.place::int
  from unnest(%(types)s::text[], %(ids)s::text[]) with ordinality as w (entity_type, entity_id, place)
  join backlog b on b.entity_type = w.entity_type and b.entity_id = w.entity_id::{entity_id_type} and b.op <> 'fanout'
union
select w.place::int
  from unnest(%(types)s::text[]) with ordinality as w (entity_type, place) join fanning f on f.entity_type = w.entity_type

-- name: failed_of
-- The highest version among the failed events of these entities; a refresh was sent with the one that it drew.
select w.place::int, f.version
  from unnest(%(types)s::text[], %(ids)s::text[]) with ordinality as w (entity_type, entity_id, place)
 cross join lateral (
        select max(greatest(e.event_version, e.read_version)) as version from search_outbox_events e
         where e.entity_type = w.entity_type and e.entity_id = w.entity_id::{entity_id_type}
           and e.failed_at is not null and e.op <> 'fanout') f
 where f.version is not null

-- name: backlog_waits
-- Whether so many fresh events wait: then whoever only compares or copies steps back.
select count(*) >= %(many)s from (
    select from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
     order by seq limit %(many)s) waiting
