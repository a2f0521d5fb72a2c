-- Why:  four roles with no more rights than their work needs (docs/security.md has the matrix, a test tries all of it):
--       producer inserts events, projector is the daemon, operator is who replays and discards, reader only reads and
--       sees no payload. Named PREFIX_producer and so on; PREFIX is `search_outbox`, or what `alter database NAME set
--       search_outbox.role_prefix = '...'` said before, where several installations share a server: roles belong to all
--       of its databases.
--       They are made without LOGIN. Where this role may not make them, `outbox migrate` says which statements are left
--       to run; the function can be called again at any time and returns those statements.
--       It also takes from PUBLIC the right to execute functions with the owner's rights, which a restore without
--       privileges gives back: nobody needs it for a trigger function, not even who fires the trigger.
--       Limits are set for each role in this database: they hold for who logs in as the role itself (a member's own
--       limits are the member's; `outbox doctor` checks what is in force).
--       Every function of ours gets a search_path with pg_temp at its end: before, a caller's temporary table took the
--       place of a table that a definer's function meant, and its triggers ran with the owner's rights.
-- Undo (the roles stay, other databases may use them; `drop role` removes them one by one; the search_path stays too):
--   do $undo$
--   declare grantee text;
--   begin
--       for grantee in select rolname from pg_roles where rolname in (
--               select coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox')
--                      || '_' || suffix from unnest(array['producer', 'projector', 'operator', 'reader']) as suffix)
--       loop
--           execute format('revoke all on all tables in schema %1$I from %2$I; '
--                          'revoke all on all sequences in schema %1$I from %2$I; '
--                          'revoke all on all functions in schema %1$I from %2$I; '
--                          'revoke usage on schema %1$I from %2$I; '
--                          'alter role %2$I in database %3$I reset all', current_schema(), grantee, current_database());
--       end loop;
--   end $undo$;
--   drop function if exists search_outbox_grant_roles();
--   delete from search_outbox_migrations where name = '0013_roles';

create or replace function search_outbox_grant_roles() returns setof text
language plpgsql set search_path from current as $fn$
declare
    prefix constant text := coalesce(nullif(current_setting('search_outbox.role_prefix', true), ''), 'search_outbox');
    -- Not current_schema(): the path of this function begins with pg_catalog.
    home constant text := (
        select relnamespace::regnamespace::text from pg_class where oid = 'search_outbox_events'::regclass);
    suffixes constant text[] := array['producer', 'projector', 'operator', 'reader'];
    -- What a producer may say of its event; the guide's INSERT names status, attempts and replay_count too.
    told constant text := 'id, entity_type, entity_id, op, event_version, payload, routing, idempotency_key, status, '
        'attempts, replay_count, max_attempts, traceparent, tracestate, created_at, updated_at';
    -- What a person's act changes. Who an event is about, its version and its payload are nobody's to change.
    acted constant text := 'seq, status, attempts, replay_count, abandoned_count, owner, lease_until, '
        'processing_started_at, next_retry_at, processed_at, failed_at, error_reason, error_code, error, '
        'error_fingerprint, dead_reason, error_detail, last_replayed_at, last_replayed_by, last_replayed_reason, updated_at';
    all_but_payload constant text := (
        select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
         where attrelid = 'search_outbox_events'::regclass and attnum > 0 and not attisdropped and attname <> 'payload');
    statement text;
    suffix text;
begin
    foreach suffix in array suffixes loop
        if to_regrole(quote_ident(prefix || '_' || suffix)) is null then
            statement := format('create role %I nologin', prefix || '_' || suffix);
            begin
                execute statement;
            exception
                when insufficient_privilege then
                    return next statement || ';';
                when duplicate_object or unique_violation then
                    null;  -- another database of this server was faster
            end;
        end if;
    end loop;

    for suffix, statement in
        select g.suffix, format('grant %s on %s to %I', g.rights, g.things, prefix || '_' || g.suffix)
          from (values
            ('producer', 'usage', 'schema ' || home),
            ('producer', format('insert (%s), select (id, idempotency_key)', told), 'search_outbox_events'),
            ('producer', 'usage', 'sequence search_outbox_seq, search_outbox_version'),

            ('projector', 'usage', 'schema ' || home),
            ('projector', format('select, delete, update (op, read_version, read_found, lease_token, last_attempt_at, %s)',
                acted), 'search_outbox_events'),
            ('projector', 'select, insert, delete', 'search_outbox_attempts'),
            ('projector', 'select, insert, update, delete', 'search_outbox_leases, search_outbox_workers, '
                'search_outbox_rollup, search_outbox_webhook_deliveries'),
            ('projector', 'select, insert, update', 'search_outbox_quotas'),
            ('projector', 'select, insert, delete', 'search_outbox_controls'),
            ('projector', 'select, update, delete', 'search_outbox_replays'),
            ('projector', 'select, update', 'search_outbox_replay_items, search_outbox_rebuilds'),
            ('projector', 'update (told)', 'search_outbox_discards'),
            ('projector', 'select, insert', 'search_outbox_audit'),
            ('projector', 'select', 'search_outbox_audit_head, search_outbox_discards, search_outbox_verifications, '
                'search_outbox_migrations'),
            ('projector', 'usage', 'sequence search_outbox_seq, search_outbox_rebuild_revision'),
            ('projector', 'usage, select', 'sequence search_outbox_version'),

            ('operator', 'usage', 'schema ' || home),
            ('operator', format('select, delete, insert (%s), update (%s)', told, acted), 'search_outbox_events'),
            ('operator', 'select, delete', 'search_outbox_attempts'),
            ('operator', 'select, insert, update, delete', 'search_outbox_controls'),
            ('operator', 'select, insert, update', 'search_outbox_replays, search_outbox_replay_items, '
                'search_outbox_webhook_deliveries, search_outbox_rebuilds'),
            ('operator', 'select, insert, update, delete', 'search_outbox_verifications, search_outbox_backfills'),
            ('operator', 'select, insert', 'search_outbox_audit'),
            ('operator', 'select', 'search_outbox_audit_head, search_outbox_audit_pruned, search_outbox_discards, '
                'search_outbox_leases, search_outbox_workers, search_outbox_quotas, search_outbox_rollup, '
                'search_outbox_migrations'),
            ('operator', 'usage, select', 'sequence search_outbox_seq, search_outbox_version'),
            ('operator', 'usage', 'sequence search_outbox_rebuild_revision'),

            ('reader', 'usage', 'schema ' || home),
            ('reader', format('select (%s)', all_but_payload), 'search_outbox_events'),
            ('reader', 'select', 'search_outbox_backfills, search_outbox_attempts, search_outbox_audit, '
                'search_outbox_audit_head, '
                'search_outbox_audit_pruned, search_outbox_controls, search_outbox_discards, search_outbox_leases, '
                'search_outbox_migrations, search_outbox_quotas, search_outbox_rebuilds, '
                'search_outbox_replay_items, search_outbox_rollup, search_outbox_verifications, '
                'search_outbox_workers'),
            ('reader', (select format('select (%s)', string_agg(quote_ident(attname), ', ' order by attnum))
                          from pg_attribute where attrelid = 'search_outbox_replays'::regclass and attnum > 0
                           and not attisdropped and attname <> 'webhook_url'), 'search_outbox_replays'),
            ('reader', (select format('select (%s)', string_agg(quote_ident(attname), ', ' order by attnum))
                          from pg_attribute where attrelid = 'search_outbox_webhook_deliveries'::regclass and attnum > 0
                           and not attisdropped and attname <> 'url'), 'search_outbox_webhook_deliveries'),
            ('reader', 'select', 'sequence search_outbox_seq, search_outbox_version')
          ) as g (suffix, rights, things)
        union all
        select s, format('grant execute on function search_outbox_audit_prune, search_outbox_raise_version to %I',
                         prefix || '_' || s)
          from unnest(array['projector', 'operator']) as s
        union all
        select '', format('revoke execute on function %s from public', p.oid::regprocedure) from pg_proc p
         where p.prosecdef and p.pronamespace = home::regnamespace and p.proname like 'search\_outbox\_%'
        union all
        -- The user's own view, where it is there already under its usual name.
        select s, format('grant select on search_documents to %I', prefix || '_' || s)
          from unnest(array['projector', 'operator']) as s where to_regclass('search_documents') is not null
        union all
        -- A producer's limits are the application's to choose.
        select l.suffix, format('alter role %I in database %I set %s = %L',
                                prefix || '_' || l.suffix, current_database(), l.name, l.value)
          from (values
            ('projector', 'statement_timeout', '60s'), ('projector', 'lock_timeout', '10s'),
            ('projector', 'idle_in_transaction_session_timeout', '60s'),
            ('operator', 'statement_timeout', '5min'), ('operator', 'lock_timeout', '10s'),
            ('operator', 'idle_in_transaction_session_timeout', '5min'),
            ('reader', 'statement_timeout', '30s'), ('reader', 'lock_timeout', '10s'),
            ('reader', 'idle_in_transaction_session_timeout', '60s')
          ) as l (suffix, name, value)
    loop
        begin
            execute statement;
        exception when insufficient_privilege or undefined_object then
            return next statement || ';';
        end;
    end loop;
end
$fn$;
revoke execute on function search_outbox_grant_roles() from public;

do $do$
declare
    ours record;
    remaining text;
begin
    for ours in
        select p.oid::regprocedure as named, p.prosecdef from pg_proc p join pg_namespace n on n.oid = p.pronamespace
         where n.nspname = current_schema()
           and (p.proname like 'search\_outbox\_%' or p.proname in ('outbox_enqueue', 'outbox_refresh'))
           -- The functions of `outbox attach` keep the path that they were made with.
           and p.proname not like 'search\_outbox\_capture%'
           and (p.prosecdef or p.proconfig is not null)
    loop
        execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours.named, current_schema());
        if ours.prosecdef then
            execute format('revoke execute on function %s from public', ours.named);
        end if;
    end loop;
    select string_agg(statement, E'\n') into remaining from search_outbox_grant_roles() as statement;
    if remaining is not null then
        raise warning 'the roles of docs/security.md are not complete: this role may not make or change them'
            using hint = E'Everything works without them. To have them, run as a role that may:\n' || remaining;
    end if;
end
$do$;
