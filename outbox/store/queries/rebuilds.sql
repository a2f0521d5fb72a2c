-- A rebuild of an index: one row, moved from step to step by whoever holds its lease. Daemons read what they mirror to
-- from the row with the highest revision, and answer in their own row.

-- name: mirroring
-- Every daemon, every second: the newest word about what is mirrored. A few rows, read as a whole.
select id, revision, target, mirrors from search_outbox_rebuilds order by revision desc, id desc limit 1

-- name: confirm
-- A worker says which revision it obeys from now on.
update search_outbox_workers set rebuild_seen = %(revision)s
 where worker_id = %(worker_id)s and start_id = %(start_id)s

-- name: note_refusals
-- Documents that the second index refused: all are counted, the first hundred kept.
update search_outbox_rebuilds r
   set refused = r.refused + %(count)s, updated_at = clock_timestamp(),
       refusals = (select json_agg(kept.one)
                     from (select one from (
                                select e.one, 1 as part, e.place
                                  from json_array_elements(coalesce(r.refusals, '[]')) with ordinality as e (one, place)
                                union all
                                select n.one, 2, n.place
                                  from json_array_elements(%(refusals)s::json) with ordinality as n (one, place)) both_parts
                            order by part, place limit 100) kept)
 where r.id = %(id)s

-- name: give_up
-- A daemon met a second index that is gone, blocked or silent: it is no longer mirrored to. Once: the revision decides.
update search_outbox_rebuilds
   set status = case when status = 'running' then 'broken' else status end, broken = %(why)s, mirrors = '{}',
       revision = nextval('search_outbox_rebuild_revision'), updated_at = clock_timestamp()
 where id = %(id)s and revision = %(revision)s and mirrors <> '{}'
returning id

-- name: begin
-- Nothing -> running, step created. No row: one that is not over is in the way.
insert into search_outbox_rebuilds
       (target, old_index, new_index, mapping, options, total, started_by, reason, owner, lease_until)
select %(target)s, %(old_index)s, %(new_index)s, %(mapping)s::json, %(options)s::json, %(total)s, %(started_by)s,
       %(reason)s, %(owner)s, clock_timestamp() + %(lease)s
 where not exists (select from search_outbox_rebuilds where status in ('running', 'swapped', 'broken'))
    on conflict do nothing
returning id

-- name: _rebuild
-- The columns of a rebuild.
id, target, old_index, new_index, mapping, step, status, total, written, refused, refusals, started_by,
reason, owner, lease_until > clock_timestamp() as held, started_at, updated_at, swapped_at, finished_at, error,
mirrors, revision, broken, options, verification_id

-- name: newest
-- Reads: the last rebuild, whatever became of it.
select
-- include: _rebuild
  from search_outbox_rebuilds order by id desc limit 1

-- name: lately
-- Reads: the last rebuilds, the newest first.
select
-- include: _rebuild
  from search_outbox_rebuilds order by id desc limit %(limit)s

-- name: take
-- Takes the lease of a rebuild that nobody works on: free, run out, or held by a process known dead.
update search_outbox_rebuilds
   set owner = %(owner)s, lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp()
 where id = %(id)s
   and (lease_until is null or lease_until < clock_timestamp() or owner = %(owner)s or owner = %(dead_owner)s)
returning
-- include: _rebuild

-- name: renew
-- The holder is at work. No row: someone else has taken it.
update search_outbox_rebuilds set lease_until = clock_timestamp() + %(lease)s
 where id = %(id)s and owner = %(owner)s
returning status

-- name: let_go
-- The holder stops here; anyone may go on.
update search_outbox_rebuilds set lease_until = null, owner = null, updated_at = clock_timestamp()
 where id = %(id)s and owner = %(owner)s

-- name: advance
-- Step by step, each a compare-and-set on what it was. A new list of mirrors has a new revision.
update search_outbox_rebuilds
   set step = %(step)s, status = %(status)s,
       mirrors = coalesce(%(mirrors)s::text[], mirrors),
       revision = case when %(mirrors)s::text[] is null then revision
                       else nextval('search_outbox_rebuild_revision') end,
       cursor = case when %(reset)s then null else cursor end,
       written = case when %(reset)s then 0 else written end,
       refused = case when %(reset)s then 0 else refused end,
       refusals = case when %(reset)s then null else refusals end,
       broken = case when %(reset)s then null else broken end,
       verification_id = coalesce(%(verification_id)s, verification_id),
       swapped_at = case when %(status)s = 'swapped' and swapped_at is null then clock_timestamp() else swapped_at end,
       finished_at = case when %(status)s in ('finished', 'cancelled', 'rolled_back', 'failed')
                          then clock_timestamp() end,
       error = %(error)s, updated_at = clock_timestamp()
 where id = %(id)s and owner = %(owner)s and step = %(from_step)s and status = %(from_status)s
returning
-- include: _rebuild

-- name: gather
-- What the parts of the backfill have written so far, all together. No row: it is no longer ours to write.
update search_outbox_rebuilds
   set written = %(written)s, lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp()
 where id = %(id)s and owner = %(owner)s and status = 'running'
returning refused

-- name: unconfirmed
-- Live workers that have not confirmed this revision. Silent for three of their intervals (five seconds at least) is gone:
-- such a process asks again before it writes.
select worker_id from search_outbox_workers
 where state <> 'stopped' and coalesce(rebuild_seen, 0) < %(revision)s
   and heartbeat_at > clock_timestamp() - make_interval(secs => greatest(3 * heartbeat_seconds, 5))
 order by 1

-- name: now
-- The database's clock.
select clock_timestamp()

-- name: older_leases
-- Batches that were claimed before a moment and are not over.
select owner, count(*)::int from search_outbox_leases where started_at <= %(moment)s group by owner order by 1
