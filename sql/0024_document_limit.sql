-- Why:  an event above what a record of Kafka may hold stopped the connector for everybody, and one above
--       OUTBOX_MAX_DOCUMENT_BYTES was taken and failed later. `outbox_enqueue` refuses both, and the event log does so
--       whoever writes to it. The limit is a function that PostgreSQL inlines, so it costs no read; `outbox migrate` gives
--       it the value of the setting.
-- Undo:
--   do $undo$
--   declare ours record;
--   begin
--       for ours in select pg_get_functiondef(p.oid) as text from pg_proc as p
--                    where p.pronamespace = current_schema()::regnamespace
--                      and strpos(p.prosrc, '.search_outbox_max_bytes()') > 0 and p.proname <> 'search_outbox_limit_payloads'
--       loop
--           execute regexp_replace(ours.text, '    if octet_length\((new\.)??payload::text\).*?end if;\n', '');
--       end loop;
--   end $undo$;
--   drop function if exists search_outbox_limit_payloads();
--   drop function if exists search_outbox_max_bytes();
--   delete from search_outbox_migrations where name = '0024_document_limit';
-- Roles: EXECUTE of search_outbox_max_bytes for everybody.

create or replace function search_outbox_max_bytes() returns int
language sql immutable parallel safe as 'select 33554432';

-- Adds the refusal to the functions that lack it; also called when the event log is made.
create or replace function search_outbox_limit_payloads() returns void
language plpgsql set search_path from current as $fn$
declare
    home constant regnamespace := (select relnamespace from pg_class where oid = 'search_outbox_events'::regclass);
    refusal constant text := format($check$
    if octet_length(payload::text) > %1$s.search_outbox_max_bytes() then
        raise exception 'outbox_enqueue: payload has %% bytes, %% at most', octet_length(payload::text),
            %1$s.search_outbox_max_bytes() using errcode = '54000',
            hint = 'Make the document smaller, or raise OUTBOX_MAX_DOCUMENT_BYTES and run outbox migrate.';
    end if;
$check$, home);
    ours record;
begin
    for ours in
        select pg_get_functiondef(p.oid) as text, p.proname = 'search_outbox_log_fill' as is_trigger from pg_proc as p
         where p.pronamespace = home and strpos(p.prosrc, 'search_outbox_max_bytes') = 0
           and p.proname in ('outbox_enqueue', 'search_outbox_enqueue_table', 'search_outbox_log_fill')
    loop
        execute replace(ours.text, E'\nbegin\n', E'\nbegin'
            || case when ours.is_trigger then replace(refusal, 'payload:', 'new.payload:') else refusal end);
    end loop;
end
$fn$;
revoke execute on function search_outbox_limit_payloads() from public;

do $do$
begin
    execute format('alter function search_outbox_limit_payloads() set search_path = pg_catalog, %I, pg_temp', current_schema());
end
$do$;

select search_outbox_limit_payloads();
