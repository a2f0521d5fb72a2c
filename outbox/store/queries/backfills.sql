-- Backfills of the index in use: one row each. How far one is says `rebuild_parts`.

-- name: begin
-- A backfill starts; one that stopped half-way is cancelled. No row: another one runs. Only the last hundred stay.
with held as (
    select from search_outbox_backfills
     where status = 'running' and lease_until > clock_timestamp() and owner is distinct from %(dead_owner)s
), stopped as (
    update search_outbox_backfills set status = 'cancelled', finished_at = clock_timestamp(), owner = null
     where status = 'running' and not exists (select from held)
), old as (
    delete from search_outbox_backfills
     where id in (select id from search_outbox_backfills order by id desc offset 99)
)
insert into search_outbox_backfills (entity_types, total, started_by, reason, owner, lease_until)
select %(entity_types)s::text[], %(total)s, %(started_by)s, %(reason)s, %(owner)s, clock_timestamp() + %(lease)s
 where not exists (select from held)
returning
-- include: _backfill

-- name: _backfill
-- The columns of a backfill.
id, entity_types, status, total, written, newer, refused, refusals, started_by, reason, owner,
lease_until > clock_timestamp() as held, started_at, updated_at, finished_at, error

-- name: newest
-- Reads: the last backfill, whatever became of it.
select
-- include: _backfill
  from search_outbox_backfills order by id desc limit 1

-- name: take
-- Takes the lease of a backfill that nobody works on: free, run out, or held by a process known dead.
update search_outbox_backfills
   set owner = %(owner)s, lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp(),
       status = 'running', finished_at = null, error = null
 where id = %(id)s
   and (lease_until is null or lease_until < clock_timestamp() or owner = %(owner)s or owner = %(dead_owner)s)
returning
-- include: _backfill

-- name: _kept_refusals
-- The first hundred refusals, with new ones at the end.
           select json_agg(kept.one)
             from (select one from (
                        select e.one, 1 as part, e.place
                          from json_array_elements(coalesce(b.refusals, '[]')) with ordinality as e (one, place)
                        union all
                        select n.one, 2, n.place
                          from json_array_elements(%(refusals)s::json) with ordinality as n (one, place)) both_parts
                    order by part, place limit 100) kept

-- name: gather
-- What its parts have done so far, all together. No row: it is not ours.
update search_outbox_backfills
   set written = %(written)s, newer = %(newer)s, refused = %(refused)s, lease_until = clock_timestamp() + %(lease)s,
       updated_at = clock_timestamp()
 where id = %(id)s and owner = %(owner)s and status = 'running'
returning id

-- name: note_refusals
-- Of one part: the first hundred of all are kept.
update search_outbox_backfills b set refusals = (
-- include: _kept_refusals
           )
 where b.id = %(id)s

-- name: end
-- It is over, or the holder stops here and anyone may go on (running).
update search_outbox_backfills
   set status = %(status)s, error = %(error)s, owner = null, lease_until = null, updated_at = clock_timestamp(),
       finished_at = case when %(status)s = 'running' then null else clock_timestamp() end
 where id = %(id)s and owner = %(owner)s
