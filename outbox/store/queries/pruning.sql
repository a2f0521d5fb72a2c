-- Pruning of finished events: small steps over the index on processed_at, oldest first. A step reads candidates
-- behind the last one it saw, so that rows which must stay are read once per pass and not once per step.

-- name: lock
-- One process prunes at a time; the lock ends with the transaction.
select pg_try_advisory_xact_lock(%(key)s)

-- name: candidates
-- Finished rows that are old enough, behind a place, locked against a replay of a discarded one.
select e.id, e.processed_at, e.status, e.op
  from search_outbox_events e
 where e.processed_at is not null and e.processed_at < %(before)s
   and e.processed_at >= %(after_at)s and (e.processed_at, e.id) > (%(after_at)s, %(after_id)s)
 order by e.processed_at, e.id limit %(limit)s
   for update skip locked

-- name: deletes_in_use
-- Of these done deletes, those that an older event of their entity may still need: one that is failed or discarded.
select d.id
  from search_outbox_events d
 where d.id = any (%(ids)s::uuid[])
   and (exists (select from search_outbox_events f
                 where f.failed_at is not null and f.entity_type = d.entity_type and f.entity_id = d.entity_id
                   and (f.event_version, coalesce(f.seq, 0)) < (d.event_version, coalesce(d.seq, 0)))
        or exists (select from search_outbox_discards g
                    where g.entity_type = d.entity_type and g.entity_id = d.entity_id::text
                      and (g.event_version, coalesce(g.seq, 0)) < (d.event_version, coalesce(d.seq, 0))))

-- name: deletes_before_open
-- The same for older events that are open. Without an entity index this reads all open rows once: hence a time limit.
with open_rows as materialized (
    select entity_type, entity_id, event_version, seq from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
    union all
    select entity_type, entity_id, event_version, seq from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
    union all
    select entity_type, entity_id, event_version, seq from search_outbox_events
     where processed_at is null and failed_at is null and abandoned_count > 0
)
select distinct d.id
  from search_outbox_events d
  join open_rows o on o.entity_type = d.entity_type and o.entity_id = d.entity_id
 where d.id = any (%(ids)s::uuid[])
   and (o.event_version, coalesce(o.seq, 0)) < (d.event_version, coalesce(d.seq, 0))

-- name: deletes_before_open_by_index
-- The same over the entity index.
select d.id
  from search_outbox_events d
 where d.id = any (%(ids)s::uuid[])
   and exists (select from search_outbox_events o
                where o.entity_type = d.entity_type and o.entity_id = d.entity_id
                  and o.event_version <= d.event_version
                  and (o.event_version, coalesce(o.seq, 0)) < (d.event_version, coalesce(d.seq, 0))
                  and o.processed_at is null and o.failed_at is null)

-- name: newest
-- Where there is no view: of these done rows, those that are the newest done one of their entity. The entity index
-- answers it; without one every done row is read, hence a time limit.
select c.id
  from search_outbox_events c
 where c.id = any (%(ids)s::uuid[])
   and not exists (select from search_outbox_events n
                    where n.entity_type = c.entity_type and n.entity_id = c.entity_id and n.status = 'done'
                      and n.processed_at is not null
                      and (n.event_version, coalesce(n.seq, 0)) > (c.event_version, coalesce(c.seq, 0)))

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
