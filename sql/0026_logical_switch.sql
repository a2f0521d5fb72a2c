-- Why:  a database that was filled by logical replication has rows and no sequences, and needs a key of every table. The
--       attempts had none: a prune failed on the publisher, or stopped its subscriber for good ("could not identify an
--       equality operator for type json"). Only versions were caught up with: ids of verifications, rebuilds and
--       backfills were given out twice, so that the next one failed; new events had a `seq` below all others, and waited
--       for the pass of a lane that finds late ones. And the audit's triggers, which always fire, made new hashes for
--       rows that were replicated: `outbox audit verify` took the whole audit for tampered with.
-- Undo:
--   create index if not exists search_outbox_attempts_event_idx on search_outbox_attempts (event_id);
--   alter table search_outbox_attempts replica identity default;
--   drop index if exists search_outbox_attempts_event_at_idx;
--   do $undo$
--   begin
--       execute regexp_replace(pg_get_functiondef('search_outbox_audit_chain()'::regprocedure),
--                              '    -- Replicated.*?end if;\n', '');
--       execute regexp_replace(pg_get_functiondef('search_outbox_catch_up()'::regprocedure),
--                              '    perform \S*search_outbox_catch_up_ids\(\);\n', '');
--       execute replace(pg_get_functiondef('search_outbox_given_out()'::regprocedure),
--                       'case when n.event_version <= 4611686018427387904 then n.event_version end end',
--                       'n.event_version end');
--   end $undo$;
--   drop function if exists search_outbox_catch_up_ids();
--   delete from search_outbox_migrations where name = '0026_logical_switch';
-- Roles: none. The new function is called by search_outbox_catch_up, with its owner's rights.

-- Of one event two attempts never end in one microsecond; what an older version may have left double is removed.
delete from search_outbox_attempts a using search_outbox_attempts b
 where a.event_id = b.event_id and a.at = b.at and a.ctid > b.ctid;
create unique index search_outbox_attempts_event_at_idx on search_outbox_attempts (event_id, at);
drop index search_outbox_attempts_event_idx;
alter table search_outbox_attempts replica identity using index search_outbox_attempts_event_at_idx;

-- Sequences of our own tables go above their rows: not above what a producer made up, or the next insert would find no
-- number. Never back; the lock is that of search_outbox_raise_version.
create or replace function search_outbox_catch_up_ids() returns void
language plpgsql security definer set search_path from current as $fn$
declare
    ours record;
    last bigint;
    given_out bigint;
begin
    perform pg_advisory_xact_lock(hashtextextended('search_outbox_version', 0));
    for ours in
        select 'search_outbox_seq' as sequence,
               'select max(seq) from ((select seq from search_outbox_events where processed_at is not null
                                        order by processed_at desc limit 1000)
                                      union all
                                      (select seq from search_outbox_events where processed_at is null
                                          and failed_at is null and next_retry_at is null and abandoned_count = 0
                                          and seq <= 4611686018427387904
                                        order by seq desc limit 1)) n
                 where seq <= 4611686018427387904' as highest
        union all
        select pg_get_serial_sequence(t, 'id'), format('select max(id) from %s', t)
          from unnest(array['search_outbox_rebuilds', 'search_outbox_verifications',
                            'search_outbox_backfills', 'search_outbox_rebuild_parts']) as t
         where to_regclass(t) is not null
    loop
        execute ours.highest into given_out;
        -- One that was never asked will give out its last_value.
        execute format('select last_value - (not is_called)::int from %s', ours.sequence) into last;
        if given_out > last then
            perform setval(ours.sequence, given_out);
        end if;
    end loop;
end
$fn$;
revoke execute on function search_outbox_catch_up_ids() from public;

do $do$
begin
    -- Whoever may set that role could switch triggers off as well; and what is kept has to follow from the row before it.
    execute replace(pg_get_functiondef('search_outbox_audit_chain()'::regprocedure), '    -- The head is locked',
                    $new$    -- Replicated: its hash is the one that it was given.
    if current_setting('session_replication_role') = 'replica'
       and new.hash = sha256(new.prev_hash || convert_to(search_outbox_audit_text(new), 'UTF8')) then
        return new;
    end if;
    -- The head is locked$new$);
    execute replace(pg_get_functiondef('search_outbox_catch_up()'::regprocedure), E'\nbegin\n',
                    E'\nbegin\n    perform search_outbox_catch_up_ids();\n');
    -- A version beyond what search_outbox_raise_version accepts was made up: it must not hold up the catch-up for ever.
    execute replace(pg_get_functiondef('search_outbox_given_out()'::regprocedure), 'n.event_version end',
                    'case when n.event_version <= 4611686018427387904 then n.event_version end end');
end
$do$;
select search_outbox_seal(current_schema()::regnamespace);
