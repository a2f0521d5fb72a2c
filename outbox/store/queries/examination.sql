-- What `outbox doctor` reads. Every query is bounded by rows or by the time limit of its transaction.

-- name: server
-- Reads: who serves us and how our session is limited.
select current_setting('server_version_num')::int as version_num, current_setting('server_version') as version,
       coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a local socket') as address,
       case when pg_is_in_recovery() then 'a standby (in recovery)' else 'a primary' end as serves_as,
       current_user as role, current_database() as database,
       clock_timestamp() as now,
       (select setting::bigint from pg_settings where name = 'statement_timeout') as statement_timeout_ms,
       (select setting::bigint from pg_settings where name = 'lock_timeout') as lock_timeout_ms,
       (select setting::bigint from pg_settings where name = 'idle_in_transaction_session_timeout') as idle_timeout_ms

-- name: speed
-- Reads: what of the server decides how much an event costs it, and how large the outbox is.
select (select setting::bigint * 8192 from pg_settings where name = 'shared_buffers') as shared_buffers,
       current_setting('autovacuum')::bool as autovacuum, current_setting('max_wal_size') as max_wal_size,
       pg_total_relation_size('search_outbox_events') as bytes, wal_bytes::bigint as wal_bytes, wal_fpi as whole_pages
  from pg_stat_wal

-- name: place_in_wal
-- Reads: which cluster this is, and how far it is, compared with a place that another one has reached.
select (select system_identifier from pg_control_system()) as system, current_database() as database,
       pg_postmaster_start_time() as started, pg_is_in_recovery() as standby, here.place::text as place,
       coalesce(here.place >= %(reached)s::text::pg_lsn, false) as has_reached,
       extract(epoch from clock_timestamp()
                          - coalesce(pg_last_xact_replay_timestamp(), pg_postmaster_start_time()))::float8 as behind_seconds
  from (select case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end as place) here

-- name: lacking_privileges
-- Reads: which of the rights that each kind of work needs this role does not have. Some are on a few columns only.
select wanted.work, wanted.relation, wanted.privilege
  from unnest(%(works)s::text[], %(relations)s::text[], %(privileges)s::text[]) as wanted (work, relation, privilege)
 where to_regclass(wanted.relation) is not null
   and not case when wanted.privilege = 'DELETE' then has_table_privilege(to_regclass(wanted.relation), 'DELETE')
                else has_any_column_privilege(to_regclass(wanted.relation), wanted.privilege) end

-- name: missing_roles
-- Reads: which of the four roles of 0013_roles this server does not have.
select named.role
  from (select coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox') || '_' || suffix
               as role
          from unnest(array['producer', 'projector', 'operator', 'reader']) as suffix) named
 where to_regrole(quote_ident(named.role)) is null

-- name: view_unreadable
-- Reads: the projector's role, if somebody logs in by it and it may not read the view of documents.
select r.rolname as role
  from pg_roles as r
 where r.rolname = coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox') || '_projector'
   and (r.rolcanlogin or exists (select from pg_auth_members as m where m.roleid = r.oid))
   and not has_any_column_privilege(r.oid, to_regclass(%(view)s), 'SELECT')

-- name: may_create
-- Reads: logins that may put functions into the schema of the outbox, and are not trusted anyway, as are
-- superusers and the owners of the tables and of the schema. `everybody`: because PUBLIC may.
select quote_ident(n.nspname) as schema, quote_ident(r.rolname) as role, everybody.may as everybody
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_roles r on r.rolcanlogin and not r.rolsuper
   and has_database_privilege(r.oid, current_database(), 'connect') and has_schema_privilege(r.oid, n.oid, 'create')
   and not pg_has_role(r.oid, c.relowner, 'member') and not pg_has_role(r.oid, n.nspowner, 'member')
 cross join lateral (select exists (select from aclexplode(n.nspacl) a
                                     where a.grantee = 0 and a.privilege_type = 'CREATE') as may) everybody
 where c.oid = 'search_outbox_events'::regclass
 order by r.rolname
 limit %(most)s

-- name: looked_up_open
-- Reads: is any of the first open rows without a payload?
select exists (select from (
    select payload, op from search_outbox_events
     where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
     order by seq limit %(most)s) head where payload is null and op in ('upsert', 'refresh'))

-- name: declared
-- Reads: entity types and what keeps each.
select entity_type, kept_by, moving from search_outbox_entity_types order by entity_type limit 1000

-- name: sequence_behind
-- Reads: where the version sequence is, and what rows say was given out.
select (select last_value from search_outbox_version) as last, search_outbox_given_out() as given_out

-- name: most_bytes
-- Reads: the largest payload that producers may write.
select search_outbox_max_bytes() as most

-- name: version_raised
-- Reads: when the version sequence was last moved above an index, among the newest acts.
select at, detail ->> 'was' as was, detail ->> 'now' as now
  from (select id, at, action, detail from search_outbox_audit order by id desc limit %(most)s) newest
 where action = 'VERSION_RAISED' order by id desc limit 1

-- name: equal_versions
-- Reads: entities of which two of the newest done events, or two open ones, have one version.
select entity_type, entity_id::text as entity_id, event_version, count(*) as n
  from ((select entity_type, entity_id, event_version, op from search_outbox_events
          where processed_at is not null order by processed_at desc limit %(most)s)
        union all
        (select entity_type, entity_id, event_version, op from search_outbox_events
          where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
          order by seq limit %(most)s)) sample
 where op <> 'fanout'
 group by entity_type, entity_id, event_version
having count(*) > 1
 limit 5

-- name: done_lately
-- Reads: the newest done upserts with payloads, each entity with the highest version among them. What is looked up may
-- be written under a version that was drawn later, which no event of it has.
select entity_type, entity_id::text as entity_id, max(event_version) as version,
       (array_agg(routing order by event_version desc))[1] as routing
  from (select entity_type, entity_id, event_version, routing, op, payload is not null as own
          from search_outbox_events where processed_at is not null order by processed_at desc limit %(most)s) newest
 where op = 'upsert' and own
 group by entity_type, entity_id

-- name: sample_of_entities
-- Reads: ids to try the view with.
select entity_type, entity_id::text as entity_id from search_outbox_events
 where op <> 'fanout' limit %(most)s

-- name: sample_of_view
-- Reads: the same from the view itself, where there is no event yet.
select entity_type, entity_id::text as entity_id from {view} limit %(most)s
