-- Replays: batches with pinned ids. Every step is a compare-and-set on the expected status under the batch's own lease
-- (`lease_token`); the database's clock alone decides when leases end and checks are due.

-- name: _batch
r.id, r.client_id, r.status, r.requested_by, r.requested_reason, r.role, r.source, r.filter, r.rate, r.webhook_to,
r.total, r.replayed, r.skipped, r.done, r.failed_again, r.still_open, r.created_at, r.dispatched_at, r.settled_at,
r.updated_at, r.owner, r.poll_count, r.last_poll_at, r.next_poll_at, r.cancelled_by, r.failure_type, r.reason

-- name: create
-- (nothing) -> queued. No row = this client has asked before.
insert into search_outbox_replays
       (id, client_id, requested_by, requested_reason, role, source, filter, rate, webhook_url,
        owner, lease_token, lease_until)
values (%(id)s, %(client_id)s, %(by)s, %(reason)s, %(role)s, %(source)s, %(filter)s::json, %(rate)s, %(webhook_url)s,
        %(owner)s, %(token)s, clock_timestamp() + %(lease)s)
    on conflict (client_id) do nothing
returning id

-- name: pin_matching
-- Pins failed events that match, the longest failed first, up to the limit.
insert into search_outbox_replay_items (replay_id, event_id, ordinal)
select %(id)s, p.id, row_number() over (order by p.failed_at, p.id)
  from (select e.id, e.failed_at from search_outbox_events e
         where e.failed_at is not null and e.status = 'failed' /* and filter */
         order by e.failed_at, e.id limit %(limit)s) p

-- name: pin_chosen
-- Pins given ids that match the rest of the filter, whatever their state: dispatch says why it skips one.
insert into search_outbox_replay_items (replay_id, event_id, ordinal)
select %(id)s, p.id, row_number() over (order by p.place)
  from (select e.id, array_position(%(ids)s::uuid[], e.id) as place from search_outbox_events e
         where e.id = any (%(ids)s::uuid[]) /* and filter */
         order by place limit %(limit)s) p

-- name: pin_ids
-- Pins exactly these ids, known or not.
insert into search_outbox_replay_items (replay_id, event_id, ordinal)
select %(id)s, g.id, g.place from unnest(%(ids)s::uuid[]) with ordinality as g (id, place)

-- name: known
-- Reads: is any of these ids an event?
select exists (select from search_outbox_events e where e.id = any (%(ids)s::uuid[]))

-- name: set_total
-- How many rows were pinned.
update search_outbox_replays set total = %(total)s where id = %(id)s

-- name: take_over
-- Takes the lease of unfinished batches whose holder is gone: its lease ran out.
update search_outbox_replays r
   set owner = %(owner)s, lease_token = gen_random_uuid(), lease_until = clock_timestamp() + %(lease)s,
       updated_at = clock_timestamp()
 where r.id in (
        select id from search_outbox_replays
         where status in ('queued', 'dispatching') and (lease_until is null or lease_until < (select clock_timestamp()))
         order by created_at limit %(limit)s
           for no key update skip locked)
returning r.id, r.lease_token

-- name: begin
-- queued -> dispatching, and dispatching again for who took it over.
update search_outbox_replays r
   set status = 'dispatching', lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp()
 where r.id = %(id)s and r.status in ('queued', 'dispatching') and r.lease_token = %(token)s
returning r.id

-- name: renew
-- The lease of a batch whose holder waits for its rate.
update search_outbox_replays r
   set lease_until = clock_timestamp() + %(lease)s
 where r.id = %(id)s and r.status = 'dispatching' and r.lease_token = %(token)s
returning r.id

-- name: let_go
-- Gives the lease back, so that the next process need not wait for its end.
update search_outbox_replays r
   set lease_until = clock_timestamp(), updated_at = clock_timestamp()
 where r.id = %(id)s and r.status in ('queued', 'dispatching', 'following') and r.lease_token = %(token)s

-- name: hold
-- Locks a batch for one step, if it is still in that state and still ours.
select
-- include: _batch
  from search_outbox_replays r
 where r.id = %(id)s and r.status = %(status)s and r.lease_token = %(token)s
   for no key update

-- name: dispatch
-- failed -> pending (with explicit ids also discarded -> pending) for the next pinned rows; others are skipped. Rows are
-- locked in id order and judged as they are then, so that two replays of one row move it once.
with next as materialized (
    select event_id from search_outbox_replay_items
     where replay_id = %(id)s and state = 'pinned' order by ordinal limit %(limit)s
), held as materialized (
    select e.id, e.status, e.entity_type, e.entity_id::text as entity_id, substr(e.traceparent, 4, 32) as trace_id
      from search_outbox_events e
     where e.id = any (array(select event_id from next))
     order by e.id
       for no key update
), moved as (
    update search_outbox_events e
       set status = 'pending', attempts = 0, abandoned_count = 0, next_retry_at = null,
           processed_at = null, failed_at = null,
           error_reason = null, error_code = null, error = null, error_fingerprint = null, error_detail = null,
           dead_reason = null, owner = null, lease_until = null, processing_started_at = null,
           seq = coalesce(e.seq, nextval('search_outbox_seq')),
           replay_count = least(greatest(e.replay_count, 0), 2147483646) + 1, last_replayed_at = clock_timestamp(), last_replayed_by = %(by)s,
           last_replayed_reason = %(reason)s, updated_at = clock_timestamp()
     where e.id = any (array(select id from held
                              where status = 'failed' or (%(explicit)s and status = 'discarded')))
    returning e.id, e.replay_count
), marked as (
    update search_outbox_replay_items i
       set state = case when m.id is null then 'skipped' else 'replayed' end,
           skip_reason = case when m.id is null then coalesce(h.status, 'not_found') end,
           replay_count = m.replay_count, at = clock_timestamp()
      from next n left join moved m on m.id = n.event_id left join held h on h.id = n.event_id
     where i.replay_id = %(id)s and i.event_id = n.event_id
    returning i.event_id, i.ordinal, i.skip_reason, i.replay_count
)
select k.event_id, k.skip_reason, k.replay_count, h.entity_type, h.entity_id, h.trace_id
  from marked k left join held h on h.id = k.event_id
 order by k.ordinal

-- name: count_step
-- Adds one step's counts and renews the lease.
update search_outbox_replays r
   set replayed = r.replayed + %(replayed)s, skipped = r.skipped + %(skipped)s,
       still_open = r.still_open + %(replayed)s,
       lease_until = clock_timestamp() + %(lease)s, updated_at = clock_timestamp()
 where r.id = %(id)s
returning r.total - r.replayed - r.skipped

-- name: finish_dispatch
-- dispatching -> following: nothing is pinned any more. Any daemon may check it next.
update search_outbox_replays r
   set status = 'following', dispatched_at = clock_timestamp(), owner = null, lease_until = null,
       next_poll_at = clock_timestamp() + %(delay)s, updated_at = clock_timestamp()
 where r.id = %(id)s and r.status = 'dispatching' and r.lease_token = %(token)s
   and not exists (select from search_outbox_replay_items i where i.replay_id = r.id and i.state = 'pinned')
returning r.id

-- name: take_checks
-- Takes the lease of followed batches whose check is due, or whose rows have all come to an end: the last row first,
-- because it is the last one to be projected.
update search_outbox_replays r
   set owner = %(owner)s, lease_token = gen_random_uuid(), lease_until = clock_timestamp() + %(lease)s
 where r.id in (
        select f.id from search_outbox_replays f
         where f.status = 'following' and (f.lease_until is null or f.lease_until < (select clock_timestamp()))
           and (%(id)s::uuid is null or f.id = %(id)s)
           and (f.still_open > 0 or f.last_poll_at is null)
           and (f.next_poll_at <= (select clock_timestamp())
                or not exists (select from (
                        select from search_outbox_replay_items i
                          join search_outbox_events e on e.id = i.event_id
                         where i.replay_id = f.id and i.state = 'replayed' and i.outcome is null
                           and e.replay_count = i.replay_count and e.status in ('pending', 'processing')
                         order by i.ordinal desc limit 1) open_row))
         order by f.next_poll_at limit %(limit)s
           for no key update of f skip locked)
returning r.id, r.lease_token

-- name: check
-- Writes down how rows have ended since the last check. A row that is gone was done; one that was replayed once more had
-- failed again before.
with ended as (
    select j.event_id,
           case when e.id is null then 'done' when e.replay_count <> j.replay_count then 'failed' else e.status end as how
      from search_outbox_replay_items j
      left join search_outbox_events e on e.id = j.event_id
     where j.replay_id = %(id)s and j.state = 'replayed' and j.outcome is null
       and (e.id is null or e.replay_count <> j.replay_count or e.status in ('done', 'failed', 'discarded'))
), marked as (
    update search_outbox_replay_items i set outcome = ended.how, at = clock_timestamp()
      from ended
     where i.replay_id = %(id)s and i.event_id = ended.event_id
    returning ended.how
)
select count(*) filter (where how = 'done'), count(*) filter (where how = 'failed'),
       count(*) filter (where how = 'discarded')
  from marked

-- name: checked
-- following -> following | timeout: the counts of one check and what they mean.
update search_outbox_replays r
   set status = %(status)s, done = r.done + %(done)s, failed_again = r.failed_again + %(failed)s,
       still_open = r.still_open - %(done)s - %(failed)s - %(discarded)s,
       poll_count = %(poll_count)s, last_poll_at = clock_timestamp(),
       next_poll_at = clock_timestamp() + %(delay)s, lease_until = null, owner = null,
       failure_type = case when %(status)s = 'timeout' then 'timeout' end, reason = %(reason)s,
       settled_at = case when %(status)s = 'timeout' then clock_timestamp() end, updated_at = clock_timestamp()
 where r.id = %(id)s
returning
-- include: _batch
, r.webhook_url

-- name: take_settles
-- Takes the lease of followed batches that have nothing open any more.
update search_outbox_replays r
   set owner = %(owner)s, lease_token = gen_random_uuid(), lease_until = clock_timestamp() + %(lease)s
 where r.id in (
        select f.id from search_outbox_replays f
         where f.status = 'following' and f.still_open = 0 and f.last_poll_at is not null
           and (f.lease_until is null or f.lease_until < (select clock_timestamp()))
           and (%(id)s::uuid is null or f.id = %(id)s)
         order by f.created_at limit %(limit)s
           for no key update skip locked)
returning r.id, r.lease_token

-- name: settle
-- following -> settled.
update search_outbox_replays r
   set status = 'settled', settled_at = clock_timestamp(), owner = null, lease_until = null,
       updated_at = clock_timestamp()
 where r.id = %(id)s and r.status = 'following' and r.lease_token = %(token)s
returning
-- include: _batch
, r.webhook_url

-- name: fail
-- queued | dispatching -> failed: an error that waiting does not cure.
update search_outbox_replays r
   set status = 'failed', failure_type = %(failure_type)s, reason = %(reason)s, settled_at = clock_timestamp(),
       owner = null, lease_until = null, updated_at = clock_timestamp()
 where r.id = %(id)s and r.status in ('queued', 'dispatching') and r.lease_token = %(token)s
returning
-- include: _batch
, r.webhook_url

-- name: hold_live
-- Locks a batch that is not over, whoever has its lease.
select
-- include: _batch
  from search_outbox_replays r
 where r.id = %(id)s and r.status in ('queued', 'dispatching', 'following')
   for no key update

-- name: cancel
-- queued | dispatching | following -> cancelled, with one last count. What moved stays moved.
update search_outbox_replays r
   set status = 'cancelled', cancelled_by = %(by)s, reason = %(reason)s, settled_at = clock_timestamp(),
       done = r.done + %(done)s, failed_again = r.failed_again + %(failed)s,
       still_open = r.still_open - %(done)s - %(failed)s - %(discarded)s,
       owner = null, lease_until = null, updated_at = clock_timestamp()
 where r.id = %(id)s
returning
-- include: _batch
, r.webhook_url

-- name: get
-- Reads: one batch.
select
-- include: _batch
  from search_outbox_replays r where r.id = %(id)s

-- name: by_client
-- Reads: what this client has asked for before.
select
-- include: _batch
  from search_outbox_replays r where r.client_id = %(client_id)s

-- name: page
-- Reads: batches, newest first, from below a time and id.
select
-- include: _batch
  from search_outbox_replays r
 where (r.created_at, r.id) < (%(before)s, %(before_id)s) and (not %(live)s or r.settled_at is null)
 order by r.created_at desc, r.id desc limit %(limit)s

-- name: items
-- Reads: a batch's rows that did not simply become done: skipped, failed again, discarded or still open.
select i.event_id, i.state, i.skip_reason, i.outcome, e.status, e.entity_type, e.entity_id::text as entity_id,
       e.error_reason, e.error
  from search_outbox_replay_items i
  left join search_outbox_events e on e.id = i.event_id
 where i.replay_id = %(id)s and (i.outcome is null or i.outcome <> 'done')
 order by i.ordinal limit %(limit)s

-- name: tell
-- Batches that have moved rows or ended since a daemon last reported it, each to one daemon alone.
with untold as (
    select id, told_replayed, told_skipped from search_outbox_replays
     where not told_over
       and (replayed > told_replayed or skipped > told_skipped or settled_at is not null)
     order by created_at limit %(limit)s
       for no key update skip locked
)
update search_outbox_replays r
   set told_replayed = r.replayed, told_skipped = r.skipped, told_over = r.settled_at is not null
  from untold u
 where r.id = u.id
returning r.replayed - u.told_replayed as newly_replayed, r.skipped - u.told_skipped as newly_skipped,
-- include: _batch
