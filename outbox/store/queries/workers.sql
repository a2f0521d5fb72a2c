-- Who is alive, which leases have run out, what operators have said.

-- name: register
-- Takes the worker id if it is free: new, its holder known dead, or silent for three of its own intervals.
insert into search_outbox_workers as w
       (worker_id, start_id, host, pid, version, started_at, heartbeat_at, heartbeat_seconds, entity_types, state,
        knows_types, projects)
values (%(worker_id)s, %(start_id)s, %(host)s, %(pid)s, %(version)s, clock_timestamp(), clock_timestamp(),
        %(heartbeat_seconds)s, %(entity_types)s, 'running', true, %(projects)s::json)
on conflict (worker_id) do update
   set start_id = excluded.start_id, host = excluded.host, pid = excluded.pid, version = excluded.version,
       started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at,
       heartbeat_seconds = excluded.heartbeat_seconds, entity_types = excluded.entity_types, state = 'running',
       rebuild_seen = null, server = null, knows_types = true, projects = excluded.projects
 where w.start_id = excluded.start_id
    or w.start_id = %(dead_start_id)s
    or w.state = 'stopped'
    or w.heartbeat_at < clock_timestamp() - make_interval(secs => 3 * w.heartbeat_seconds)
returning start_id

-- name: holder
-- Who has this worker id now.
select start_id, host, pid, extract(epoch from clock_timestamp() - heartbeat_at)::float8, heartbeat_seconds
  from search_outbox_workers where worker_id = %(worker_id)s

-- name: others
-- What the other workers that are not known to be gone write where.
select w.projects, w.worker_id, w.start_id, w.host, w.pid,
       extract(epoch from clock_timestamp() - w.heartbeat_at)::float8, w.heartbeat_seconds
  from search_outbox_workers w
 where w.start_id <> %(start_id)s and w.state <> 'stopped' and w.projects is not null
   and w.heartbeat_at >= clock_timestamp() - make_interval(secs => 3 * w.heartbeat_seconds)

-- name: beat
-- A worker says that it lives, and what it writes to. No row = a later start has taken its id.
update search_outbox_workers
   set heartbeat_at = clock_timestamp(), state = %(state)s, server = coalesce(%(server)s, server)
 where worker_id = %(worker_id)s and start_id = %(start_id)s
returning 1

-- name: leave
-- A clean stop: the id is free at once.
update search_outbox_workers
   set state = 'stopped', heartbeat_at = clock_timestamp()
 where worker_id = %(worker_id)s and start_id = %(start_id)s

-- name: reclaim_lock
-- One process reclaims at a time; the lock ends with the transaction.
select pg_try_advisory_xact_lock(%(key)s)

-- name: expired_leases
-- Leases that have run out or are held too long, with what is known of the process that took them. Locked before their
-- rows, as every settle does it; one that is being settled or renewed right now is left alone.
select l.token, l.start_id, cardinality(l.ids), w.start_id, w.host, w.pid,
       extract(epoch from clock_timestamp() - w.heartbeat_at)::float8 > 3 * w.heartbeat_seconds, w.state
  from search_outbox_leases l
  left join search_outbox_workers w on w.worker_id = l.owner
 where l.lease_until < (select clock_timestamp())
    or l.started_at < (select clock_timestamp()) - %(max_processing)s
 order by l.lease_until
 limit %(limit)s
   for update of l skip locked

-- name: reclaim
-- processing -> pending | failed for a part of one lease. Rows that someone holds stay in the lease for the next step.
with part as materialized (
    select id from (select unnest(ids[1:%(limit)s]) as id from search_outbox_leases where token = %(token)s) p
), stuck as materialized (
    select e.id from search_outbox_events e
     where e.id = any (array(select id from part)) and e.lease_token = %(token)s and e.status = 'processing'
     order by e.id
       for no key update skip locked
), back as (
    update search_outbox_events e
       set status = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then 'failed' else 'pending' end,
           failed_at = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then clock_timestamp() end,
           abandoned_count = least(e.abandoned_count, 1000000) + %(abandoned)s,
           error_reason = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then 'crash_suspect'
                               else e.error_reason end,
           error_code = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then 'OUTBOX_PRECONDITION_FAILED'
                             else e.error_code end,
           error = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then %(suspect_error)s else e.error end,
           error_fingerprint = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then %(suspect_fingerprint)s
                                    else e.error_fingerprint end,
           error_detail = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then %(suspect_detail)s::json end,
           dead_reason = case when least(e.abandoned_count, 1000000) + %(abandoned)s >= %(most)s then 'crash_suspect' end,
           owner = null, lease_until = null, processing_started_at = null, updated_at = clock_timestamp()
     where e.id = any (array(select id from stuck))
    returning e.id, e.status
), left_over as (
    select p.id from part p
      join search_outbox_events e on e.id = p.id and e.lease_token = %(token)s and e.status = 'processing'
     where p.id not in (select id from back)
), shrunk as (
    update search_outbox_leases l
       set ids = l.ids[%(limit)s + 1:] || coalesce((select array_agg(id) from left_over), '{}')
     where l.token = %(token)s
    returning cardinality(l.ids)
)
select (select count(*) from back), (select count(*) from back where status = 'failed'), (select * from shrunk)

-- name: close_lease
-- A lease that holds nothing any more.
delete from search_outbox_leases where token = %(token)s and cardinality(ids) = 0

-- name: put_last
-- The first row of a lease becomes its last: its turn comes after the others.
update search_outbox_leases set ids = ids[2:] || ids[1:1] where token = %(token)s

-- name: put_off
-- A lease that holds only rows that the database will not let go is read again later, after all others.
update search_outbox_leases set lease_until = clock_timestamp() + interval '10 minutes', started_at = clock_timestamp()
 where token = %(token)s and cardinality(ids) <= %(refused)s

-- name: _strays
-- Of a page of open rows those that nobody works on. A lease that ends in more than a day was written by hand: nobody
-- renews it, and the row would wait for ever. A worker from before the adoption knows only lease_until, and keeps its own.
stray as materialized (
    select e.id from search_outbox_events e
     where e.id = any (array(select p.id from page p where p.status = 'processing'))
       and e.status = 'processing'
       and (e.lease_until is null or e.lease_until < (select clock_timestamp())
            or e.lease_until > (select clock_timestamp()) + interval '1 day')
       and not exists (select from search_outbox_leases l where l.token = e.lease_token)
       for no key update skip locked
), back as (
    update search_outbox_events e
       set status = 'pending', owner = null, lease_until = null, processing_started_at = null,
           updated_at = clock_timestamp()
     where e.id = any (array(select id from stray))
    returning 1
)

-- name: sweep_fresh
-- processing -> pending for rows without a lease: set so by hand, or left by a crash of the server. A page of open rows,
-- by the claim's own index: no index may know the status. Without a row there are none behind this place.
with page as materialized (
    select id, status, seq from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
       and seq >= %(seq)s and (seq, id) > (%(seq)s, %(id)s)
     order by seq, id limit %(page)s
),
-- include: _strays
select (select count(*) from back), seq, '-infinity', 0, id from page order by seq desc, id desc limit 1

-- name: sweep_due
-- processing -> pending for rows without a lease, among those with a retry time.
with page as materialized (
    select id, status, next_retry_at from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
       and next_retry_at >= %(at)s::timestamptz and (next_retry_at, id) > (%(at)s::timestamptz, %(id)s)
     order by next_retry_at, id limit %(page)s
),
-- include: _strays
select (select count(*) from back), 0, next_retry_at::text, 0, id from page order by next_retry_at desc, id desc limit 1

-- name: sweep_suspects
-- processing -> pending for rows without a lease, among those whose worker died.
with page as materialized (
    select id, status, abandoned_count, seq from search_outbox_events
     where processed_at is null and failed_at is null and abandoned_count > 0
       and (abandoned_count, seq) >= (%(abandoned)s, %(seq)s)
       and (abandoned_count, seq, id) > (%(abandoned)s, %(seq)s, %(id)s)
     order by abandoned_count, seq, id limit %(page)s
),
-- include: _strays
select (select count(*) from back), seq, '-infinity', abandoned_count, id from page
 order by abandoned_count desc, seq desc, id desc limit 1

-- name: controls
-- What operators have said and not taken back.
select scope, kind, paused_by, reason from search_outbox_controls
 where until is null or until > (select clock_timestamp())

-- name: version_known
-- Is there a row of ours that gave the entity this version, or a lookup that was written under it?
select exists (
    select from search_outbox_events e
     where e.entity_type = %(entity_type)s and e.entity_id = %(entity_id)s::{entity_id_type}
       and (e.event_version = %(version)s or e.read_version = %(version)s))
