-- The upgrade to declared entity types.

-- name: types_of_events
-- Reads: entity types that payloads make, and whether one of their versions was never given out by our sequence.
select entity_type, bool_or(event_version > (select last_value from search_outbox_version))
  from ((select entity_type, event_version, op, payload is not null as own from search_outbox_events
          where processed_at is not null order by processed_at desc limit 100000)
        union all
        (select entity_type, event_version, op, payload is not null from search_outbox_events
          where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
          order by seq limit 100000)) newest
 where own and op = 'upsert'
 group by entity_type

-- name: declared_types
-- Reads: those that are declared already.
select entity_type from search_outbox_entity_types

-- name: older_workers
-- Reads: workers that beat and have claimed, or will claim, without a revision.
select worker_id || ' (' || coalesce(version, '?') || ')'
  from search_outbox_workers
 where state <> 'stopped' and heartbeat_at > clock_timestamp() - make_interval(secs => 3 * heartbeat_seconds)
   and not knows_types
union all
select 'a batch of ' || owner from search_outbox_leases where revision is null

-- name: is_finished
-- Reads: whether PostgreSQL refuses the claim of an older program.
select attnotnull from pg_attribute
 where attrelid = 'search_outbox_leases'::regclass and attname = 'revision'
