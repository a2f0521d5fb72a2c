-- What the sampler reads. Open rows are counted over the partial indexes of the claim, up to a limit; what an index
-- does not hold (status, created_at) is read from the rows at its ends only, because claims take from the low end.

-- name: sample_backlog
-- Reads: how much is open, how old, in flight, stuck and due. One row, also when the table is empty.
with clock as materialized (
    select clock_timestamp() as now
), fresh as (
    select count(*) as n
      from (select from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
             limit %(most)s) counted
), retries as (
    select count(*) as n
      from (select from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
             limit %(most)s) counted
), waiting as (
    select count(*) as n
      from (select from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
               and next_retry_at > (select now from clock)
             limit %(most)s) counted
), head as materialized (
    (select status, lease_until, processing_started_at, next_retry_at, created_at, false as suspect
       from search_outbox_events
      where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
      order by seq limit %(head)s)
    union all
    (select status, lease_until, processing_started_at, next_retry_at, created_at, true
       from search_outbox_events
      where processed_at is null and failed_at is null and abandoned_count > 0
      order by abandoned_count, seq limit %(head)s)
    union all
    (select status, lease_until, processing_started_at, next_retry_at, created_at, false
       from search_outbox_events
      where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
      order by next_retry_at limit 1000)
), watched as (
    select count(*) filter (where suspect) as suspects,
           count(*) filter (where suspect and status = 'pending' and next_retry_at > clock.now) as suspects_waiting,
           count(*) filter (where status = 'processing') as processing,
           count(*) filter (where status = 'processing'
                              and (lease_until < clock.now
                                   or processing_started_at < clock.now - %(max_processing)s::interval)) as stuck,
           min(created_at) as oldest
      from head, clock
), longest_waiting as (
    select min(created_at) as oldest
      from (select created_at from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
             order by next_retry_at desc limit 1000) far_end
), leased as (
    select coalesce(sum(cardinality(ids)), 0) as processing,
           coalesce(sum(cardinality(ids)) filter (
               where lease_until < clock.now or started_at < clock.now - %(max_processing)s::interval), 0) as stuck
      from search_outbox_leases, clock
)
select fresh.n + retries.n + watched.suspects as lag,
       -- Within what can be subtracted: a producer may write infinity, which PostgreSQL before 17 cannot.
       extract(epoch from clock.now - greatest(least(watched.oldest, longest_waiting.oldest, clock.now),
                                               'epoch'))::float8 as oldest_age,
       case when fresh.n <= %(head)s then watched.processing
            else greatest(watched.processing, leased.processing) end as inflight,
       case when fresh.n <= %(head)s then watched.stuck else greatest(watched.stuck, leased.stuck) end as stuck,
       waiting.n + watched.suspects_waiting as waiting,
       greatest(fresh.n, retries.n) >= %(most)s or watched.suspects >= %(head)s as capped
  from clock, fresh, retries, waiting, watched, longest_waiting, leased

-- name: sample_fanouts
-- Reads: open and failed fan-outs, the oldest up to a limit, and the open refreshes that they wrote; both by indexes that
-- hold nothing else.
with fanouts as materialized (
    select failed_at, created_at, coalesce(fanout_written, 0) as written
      from search_outbox_events where op = 'fanout' and processed_at is null order by seq limit %(head)s
), refreshes as (
    select count(*) as n
      from (select from search_outbox_events
             where fanout_id is not null and processed_at is null and failed_at is null limit %(most)s) counted
)
select count(*) filter (where failed_at is null) as open,
       coalesce(sum(written) filter (where failed_at is null), 0)::bigint as written,
       coalesce(greatest(extract(epoch from clock_timestamp() - greatest(least(
           min(created_at) filter (where failed_at is null), clock_timestamp()), 'epoch')), 0), 0)::float8
           as oldest_age_seconds,
       count(*) filter (where failed_at is not null) as failed,
       (select n from refreshes) as refreshes_open,
       count(*) >= %(head)s or (select n from refreshes) >= %(most)s as capped
  from fanouts

-- name: sample_failed
-- Reads: failed rows by reason, the newest ones first up to a limit.
select coalesce(error_reason, ''), count(*)
  from (select error_reason from search_outbox_events
         where failed_at is not null
         order by failed_at desc limit %(most)s) newest
 group by 1

-- name: sample_lanes
-- Reads: the same for each configured entity type, over the twins that `outbox migrate --by-type` adds.
select asked.entity_type,
       fresh.n + retries.n + suspects.n as lag,
       extract(epoch from clock.now - greatest(least(first.created_at, longest_waiting.oldest, suspects.oldest, clock.now),
                                               'epoch'))::float8 as oldest_age,
       greatest(fresh.n + retries.n + suspects.n - leased.n - waiting.n - suspects.waiting, 0) as due
  from unnest(%(entity_types)s::text[]) as asked (entity_type)
 cross join (select clock_timestamp() as now) clock
 cross join lateral (
    select count(*) as n
      from (select from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count < 1
               and entity_type = asked.entity_type
             limit %(most)s) counted) fresh
 cross join lateral (
    select count(*) as n
      from (select from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count < 1
               and entity_type = asked.entity_type
             limit %(most)s) counted) retries
 cross join lateral (
    select count(*) as n
      from (select from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count < 1
               and entity_type = asked.entity_type and next_retry_at > clock.now
             limit %(most)s) counted) waiting
  left join lateral (
    select created_at from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count < 1
       and entity_type = asked.entity_type
     order by seq limit 1) first on true
 cross join lateral (
    select min(created_at) as oldest
      from (select created_at from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count < 1
               and entity_type = asked.entity_type
             order by next_retry_at desc limit 1000) ends) longest_waiting
 cross join lateral (
    select count(*) as n, min(created_at) as oldest,
           count(*) filter (where status = 'pending' and next_retry_at > clock.now) as waiting
      from (select status, created_at, next_retry_at, entity_type from search_outbox_events
             where processed_at is null and failed_at is null and abandoned_count > 0
             order by abandoned_count, seq limit %(head)s) all_suspects
     where all_suspects.entity_type = asked.entity_type) suspects
 cross join lateral (
    select coalesce(sum((counts ->> asked.entity_type)::bigint), 0) as n from search_outbox_leases) leased

-- name: labelled_types
-- Reads: the types that were declared first, and so are labels of metrics.
select entity_type from search_outbox_entity_types order by declared_at, entity_type limit %(most_types)s

-- name: oldest_of_other_types
-- Reads: the age of the oldest open row of a type that is no label, among the rows at the low end.
select greatest(extract(epoch from clock_timestamp() - greatest(least(coalesce(
           min(created_at) filter (where entity_type <> all (%(entity_types)s::text[])), max(created_at)),
           clock_timestamp()), 'epoch')), 0)::float8
  from (select entity_type, created_at from search_outbox_events
         where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
         order by seq limit %(head)s) head

-- name: open_events
-- Reads: rows of one group's records that wait, by partition.
select split_part(idempotency_key, ':', 3)::int, count(*)::int
  from search_outbox_events
 where processed_at is null and failed_at is null
   and starts_with(idempotency_key, %(beginning)s)
   and regexp_replace(substr(idempotency_key, strpos(idempotency_key, '@') + 1), ':[0-9a-f-]{36}$', '') = %(group)s
 group by 1
