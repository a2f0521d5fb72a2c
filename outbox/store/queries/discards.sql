-- Discarding: a person gives an event up. The row stays, its failure too; a trigger lists it in search_outbox_discards.

-- name: discard
-- pending | failed -> discarded for one event. No row: it is in another state, or unknown.
update search_outbox_events e
   set status = 'discarded', processed_at = clock_timestamp(), failed_at = null, next_retry_at = null,
       owner = null, lease_until = null, processing_started_at = null, updated_at = clock_timestamp()
 where e.id = %(id)s and e.status in ('pending', 'failed')
returning e.id, e.entity_type, e.entity_id::text as entity_id, e.op, e.event_version, e.error_reason,
          substr(e.traceparent, 4, 32) as trace_id

-- name: status
-- Reads: the state of one event.
select status from search_outbox_events where id = %(id)s

-- name: tell
-- Discarded events that no daemon has reported yet, each to one daemon alone, with who did it and why.
with untold as (
    select event_id from search_outbox_discards where not told order by at limit %(limit)s
       for no key update skip locked
), told as (
    update search_outbox_discards d set told = true from untold u
     where d.event_id = u.event_id
    returning d.event_id, d.entity_type, d.entity_id
)
select t.event_id, t.entity_type, t.entity_id, a.actor, a.reason, a.batch_id
  from told t
  left join lateral (select actor, reason, batch_id from search_outbox_audit
                      where event_id = t.event_id and action = 'EVENT_DISCARDED' order by id desc limit 1) a on true

-- name: hold_matching
-- Locks failed events that match, in id order, one more than expected at most.
select e.id from search_outbox_events e
 where e.failed_at is not null and e.status = 'failed' /* and filter */
 order by e.id limit %(limit)s
   for no key update

-- name: discard_held
-- failed -> discarded for rows that this transaction holds.
update search_outbox_events e
   set status = 'discarded', processed_at = clock_timestamp(), failed_at = null, next_retry_at = null,
       updated_at = clock_timestamp()
 where e.id = any (%(ids)s::uuid[]) and e.status = 'failed'
returning e.id, e.entity_type, e.entity_id::text as entity_id, e.error_reason, substr(e.traceparent, 4, 32) as trace_id
