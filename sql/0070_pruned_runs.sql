-- Why:  search_outbox_audit_pruned kept the hash of every audit row that was ever pruned, for ever. Of places that follow
--       each other only the last hash is needed: the next row was made from it. So a prune leaves one place for each run,
--       which says where it begins, and the table has at most one row more than the audit itself.
--       One session at a time: two that join the same place would lose it.
--       `outbox audit verify` of the previous release, and after an undo, calls what was joined removed.
-- Undo:
--   drop trigger if exists search_outbox_audit_runs on search_outbox_audit;
--   drop function if exists search_outbox_audit_runs(), search_outbox_audit_join();
--   alter table search_outbox_audit_pruned drop column if exists since;
--   delete from search_outbox_migrations where name = '0070_pruned_runs';

alter table search_outbox_audit_pruned add column since bigint;

-- The owner's alone: it runs by the trigger below.
create or replace function search_outbox_audit_join() returns void
language plpgsql as $fn$
begin
    perform pg_advisory_xact_lock(7306240313);
    with places as materialized (
        select p.id, coalesce(p.since, p.id) as first,
               coalesce(lag(p.id) over (order by p.id) < coalesce(p.since, p.id) - 1, true) as begins
          from search_outbox_audit_pruned p
    ), runs as materialized (
        select id, first, count(*) filter (where begins) over (order by id) as run from places
    ), joined as materialized (
        select run, min(first) as first, max(id) as id from runs group by run having count(*) > 1
    ), gone as (
        delete from search_outbox_audit_pruned p
         where p.id in (select r.id from runs r join joined j on j.run = r.run and j.id <> r.id)
    )
    update search_outbox_audit_pruned p set since = j.first from joined j where p.id = j.id;
end
$fn$;

create or replace function search_outbox_audit_runs() returns trigger
language plpgsql security definer as $fn$
begin
    if tg_relid <> 'search_outbox_audit'::regclass then
        raise exception '% is not for table %', 'search_outbox_audit_runs()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    perform search_outbox_audit_join();
    return null;
end
$fn$;
-- As every function of ours: a caller's temporary table must not take the place of a table.
do $path$
declare
    ours regprocedure;
begin
    foreach ours in array array['search_outbox_audit_join()', 'search_outbox_audit_runs()']::regprocedure[] loop
        execute format('alter function %s set search_path = pg_catalog, %I, pg_temp', ours, current_schema());
    end loop;
end
$path$;
revoke execute on function search_outbox_audit_join(), search_outbox_audit_runs() from public;

create or replace trigger search_outbox_audit_runs after delete on search_outbox_audit
    for each statement execute function search_outbox_audit_runs();
alter table search_outbox_audit enable always trigger search_outbox_audit_runs;

select search_outbox_audit_join();
