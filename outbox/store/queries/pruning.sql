-- Pruning of finished events: small steps over the index on processed_at, oldest first. A step reads candidates
-- behind the last one it saw, so that rows which must stay are read once per pass and not once per step.

-- name: lock
-- One process prunes at a time; the lock ends with the transaction.
select pg_try_advisory_xact_lock(%(key)s)

-- name: candidates
-- Finished rows that are old enough, behind a place, locked against a replay of a discarded one.
select e.id, e.processed_at, e.status, e.op, e.entity_type
  from search_outbox_events e
 where e.processed_at is not null and e.processed_at < %(before)s
   and e.processed_at >= %(after_at)s and (e.processed_at, e.id) > (%(after_at)s, %(after_id)s)
 order by e.processed_at, e.id limit %(limit)s
   for update skip locked

-- name: needed
-- Of these done upserts and deletes, those that must stay: an upsert that is its entity's newest done event; a delete while
-- an older event of its entity is in the table in whatever state, or may still be written by a transaction that is open
-- since before it. Each by the entity index; without one every row is read, hence a time limit.
select c.id
  from search_outbox_events c
 where c.id = any (%(ids)s::uuid[]) and c.op = 'upsert'
   and not exists (select from search_outbox_events n
                    where n.entity_type = c.entity_type and n.entity_id = c.entity_id
                      and n.status = 'done' and n.op in ('upsert', 'delete') and n.event_version >= c.event_version
                      and (n.event_version, coalesce(n.seq, 0)) > (c.event_version, coalesce(c.seq, 0)))
union all
select d.id
  from search_outbox_events d
 where d.id = any (%(ids)s::uuid[]) and d.op = 'delete'
   and exists (select from search_outbox_events o
                where o.entity_type = d.entity_type and o.entity_id = d.entity_id
                  and o.op in ('upsert', 'delete', 'refresh') and o.event_version <= d.event_version
                  and (o.event_version, coalesce(o.seq, 0)) < (d.event_version, coalesce(d.seq, 0)))
union all
select d.id
  from search_outbox_events d
 where d.id = any (%(ids)s::uuid[]) and d.op = 'delete'
   and age(d.xmin) < age(pg_snapshot_xmin(pg_current_snapshot())::xid)

-- name: remove_attempts
-- Attempts go with their events.
delete from search_outbox_attempts where event_id = any (%(ids)s::uuid[])

-- name: remove
-- Finished rows go.
delete from search_outbox_events where id = any (%(ids)s::uuid[]) and status in ('done', 'discarded')

-- name: preview
-- Reads: how many finished rows are old enough, up to a limit; some of them may have to stay.
select count(*), min(p.processed_at), max(p.processed_at) from (
    select e.processed_at from search_outbox_events e
     where e.processed_at is not null and e.processed_at < %(before)s
     order by e.processed_at limit %(most)s) p

-- name: forget_workers
-- Stopped or silent for long: nobody asks for these any more. Who holds a lease is still judged by its heartbeat.
delete from search_outbox_workers
 where worker_id in (select w.worker_id from search_outbox_workers w
                      where w.heartbeat_at < clock_timestamp() - %(age)s
                        and not exists (select from search_outbox_leases l where l.start_id = w.start_id)
                      order by w.heartbeat_at limit %(limit)s for update skip locked)
   and heartbeat_at < clock_timestamp() - %(age)s

-- name: forget_replays
-- Removes batches that ended long ago, with their items.
delete from search_outbox_replays
 where id in (select id from search_outbox_replays
               where settled_at < (select clock_timestamp()) - %(age)s::interval order by created_at limit %(limit)s)

-- name: forget_deliveries
-- Removes deliveries that ended long ago.
delete from search_outbox_webhook_deliveries
 where id in (select id from search_outbox_webhook_deliveries
               where status <> 'pending' and created_at < (select clock_timestamp()) - %(age)s::interval
               order by created_at limit %(limit)s)

-- name: forget_rollup
-- Removes hours that nobody asks for any more.
delete from search_outbox_rollup
 where ctid = any (array(select ctid from search_outbox_rollup
                          where bucket < (select clock_timestamp()) - %(age)s::interval limit %(limit)s))

-- name: forget_places
-- Cleared so long ago that nobody who noted it can still be writing there.
delete from search_outbox_places p
 where ctid = any (array(select ctid from search_outbox_places
                          where cleared_at is not null and cleared_at < clock_timestamp() - %(age)s
                          order by cleared_at limit %(limit)s))
