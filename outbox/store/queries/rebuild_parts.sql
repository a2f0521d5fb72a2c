-- Parts of a rebuild, a backfill or a comparison: each a range of keys that one process at a time works on.

-- name: forget
-- Parts of works of this kind that are over. Comparisons run beside each other: theirs go all together, when it has ended
-- or none of them was touched for a day (it was killed). A part that nobody took yet is as old as its plan.
delete from search_outbox_rebuild_parts p
 where p.work = %(work)s and p.work_id <> %(work_id)s
   and (p.work <> 'verification'
        or exists (select from search_outbox_verifications v where v.id = p.work_id and v.status <> 'running')
        or not exists (select from search_outbox_rebuild_parts o
                        where o.work = p.work and o.work_id = p.work_id
                          and o.updated_at >= clock_timestamp() - interval '1 day'))

-- name: clear
-- Parts of one work: it begins again, or its result stands elsewhere by now.
delete from search_outbox_rebuild_parts where work = %(work)s and work_id = %(work_id)s

-- name: plan
-- Nothing -> open. Once: parts with these numbers stay as they are.
insert into search_outbox_rebuild_parts (work, work_id, number, entity_type, low, high, place)
select %(work)s, %(work_id)s, p.number, p.entity_type, p.low, p.high, p.place
  from json_to_recordset(%(parts)s::json) as p (number integer, entity_type text, low text, high text, place json)
    on conflict do nothing

-- name: exist
-- Reads: whether this work was cut into parts.
select exists (select from search_outbox_rebuild_parts where work = %(work)s and work_id = %(work_id)s)

-- name: claim
-- Takes an open part that nobody works on: free, or its lease has run out. No row: there is none.
with free as materialized (
    select id from search_outbox_rebuild_parts
     where work = %(work)s and work_id = %(work_id)s and state = 'open' and tries < %(most_tries)s
       and (lease_until is null or lease_until < clock_timestamp())
     order by number limit 1
       for no key update skip locked
)
update search_outbox_rebuild_parts p
   set owner = %(owner)s, lease_until = clock_timestamp() + %(lease)s, tries = p.tries + 1,
       started_at = coalesce(p.started_at, clock_timestamp()), updated_at = clock_timestamp()
  from free where p.id = free.id
returning p.id, p.number, p.entity_type, p.low, p.high, p.place, p.cursor

-- name: renew
-- The process is at work on what it holds.
update search_outbox_rebuild_parts set lease_until = clock_timestamp() + %(lease)s
 where work = %(work)s and work_id = %(work_id)s and owner = %(owner)s and state = 'open'

-- name: wrote_page
-- One page is in the index, or compared: where the next one begins. No row: the part is no longer ours.
update search_outbox_rebuild_parts
   set cursor = %(cursor)s, written = written + %(written)s, newer = newer + %(newer)s, refused = refused + %(refused)s,
       tries = 1, lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp()
 where id = %(id)s and owner = %(owner)s and state = 'open'
returning id

-- name: counts
-- How far a comparison is. It begins again where it is killed, so these are no sums, and its tries stay as they are: a
-- part that ends every process that takes it would go round for ever. No row: the part is not ours.
update search_outbox_rebuild_parts
   set written = %(written)s, newer = %(newer)s, refused = %(refused)s,
       lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp()
 where id = %(id)s and owner = %(owner)s and state = 'open'
returning id

-- name: finish
-- open -> done. No row: the part is no longer ours.
update search_outbox_rebuild_parts
   set state = 'done', owner = null, lease_until = null, report = coalesce(%(report)s::json, report),
       updated_at = clock_timestamp(), finished_at = clock_timestamp()
 where id = %(id)s and owner = %(owner)s and state = 'open'
returning id

-- name: free
-- Whoever held parts stops, or is known to be dead: anyone may go on. A clean stop spends no try.
update search_outbox_rebuild_parts
   set owner = null, lease_until = null, tries = case when %(clean)s then greatest(tries - 1, 0) else tries end,
       updated_at = clock_timestamp()
 where work = %(work)s and work_id = %(work_id)s and owner = any (%(owners)s::text[]) and state = 'open'

-- name: try_again
-- A person resumes: what has failed too often gets its tries back.
update search_outbox_rebuild_parts set tries = 0
 where work = %(work)s and work_id = %(work_id)s and state = 'open'

-- name: owners
-- Reads: who holds a part.
select distinct owner from search_outbox_rebuild_parts
 where work = %(work)s and work_id = %(work_id)s and state = 'open' and owner is not null

-- name: progress
-- Reads: sums over all parts, and the slowest: of those at work the one that was begun first. Materialised, because its
-- clock would run on from row to row.
with slowest as materialized (
    select number, written + newer + refused as done,
           extract(epoch from clock_timestamp() - started_at)::float8 as seconds
      from search_outbox_rebuild_parts
     where work = %(work)s and work_id = %(work_id)s and state = 'open' and lease_until > clock_timestamp()
     order by started_at, number limit 1
)
select count(*)::int as parts, (count(*) filter (where p.state = 'open'))::int as open,
       (count(*) filter (where p.state = 'open' and p.tries >= %(most_tries)s
                           and (p.lease_until is null or p.lease_until < clock_timestamp())))::int as stuck,
       (count(*) filter (where p.state = 'open' and p.lease_until > clock_timestamp()))::int as held,
       coalesce(sum(p.written), 0)::bigint as written, coalesce(sum(p.newer), 0)::bigint as newer,
       coalesce(sum(p.refused), 0)::bigint as refused, (select number from slowest) as slowest,
       (select done from slowest) as slowest_done, (select seconds from slowest) as slowest_seconds
  from search_outbox_rebuild_parts p
 where p.work = %(work)s and p.work_id = %(work_id)s

-- name: numbers
-- Reads: the parts that are not done.
select number from search_outbox_rebuild_parts
 where work = %(work)s and work_id = %(work_id)s and state = 'open' order by number

-- name: reports
-- Reads: what the finished parts of a comparison found, after the last one that was read.
select number, report from search_outbox_rebuild_parts
 where work = %(work)s and work_id = %(work_id)s and state = 'done' and report is not null
   and number <> all (%(read)s::int[])
 order by number limit %(limit)s

-- name: scan_column
-- Reads: how the view's ids of one type are read: the plan says of which column of which table.
select d.entity_id from {view} d where d.entity_type = %(entity_type)s and d.entity_id is not null

-- name: histogram
-- Reads: keys that stand equally far apart by the planner's statistics. In the order of the view's own column (its
-- collation comes from the first half): bounds in another order would overlap, and leave keys out.
select {id_text} from (
    select v.entity_id from {view} v where false
    union all
    select distinct b.entity_id from pg_stats s
     cross join lateral unnest(s.histogram_bounds::text::{id_type}[]) as b (entity_id)
     where s.schemaname = %(schema)s and s.tablename = %(table)s and s.attname = %(column)s) d
 where d.entity_id is not null
 order by {order} limit %(most)s

-- name: sample
-- Reads: keys that stand equally far apart in a random sample: one pass over the keys that builds no document.
select key from (
    select {id_text} as key, row_number() over (order by {order}) as n, count(*) over () as of
      from {view} d
     where d.entity_type = %(entity_type)s and d.entity_id is not null and random() < %(share)s::float8) sampled
 where n * %(most)s::bigint / of > (n - 1) * %(most)s::bigint / of
 order by n

-- name: event_histogram
-- Reads: the same for entity types that only events know, over the events of all types.
select b.entity_id::text from (
    select e.entity_id from search_outbox_events e where false
    union all
    select distinct unnest(s.histogram_bounds::text::{entity_id_type}[]) from pg_stats s
     where s.schemaname = (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
                            where c.oid = 'search_outbox_events'::regclass)
       and s.tablename = 'search_outbox_events' and s.attname = 'entity_id') b
 where b.entity_id is not null
 order by b.entity_id limit %(most)s
