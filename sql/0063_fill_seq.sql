-- Why:  open rows that were written with seq = null before the guard knew of it get theirs, a thousand a transaction: there
--       may be months of them, and producers and daemons must not wait. Each kind of open row is found by its own index.
-- Run:  in steps
-- Undo:
--   delete from search_outbox_migrations where name = '0063_fill_seq';

do $do$
declare
    n bigint;
begin
    loop
        perform set_config('enable_seqscan', 'off', true);
        with fresh as materialized (
            select id from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
               and seq is null
             limit 1000 for no key update
        ), due as materialized (
            select id from search_outbox_events
             where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0
               and seq is null
             limit 1000 for no key update
        ), suspect as materialized (
            select id from search_outbox_events
             where processed_at is null and failed_at is null and abandoned_count > 0 and seq is null
             limit 1000 for no key update
        )
        update search_outbox_events set seq = nextval('search_outbox_seq')
         where seq is null
           and id = any (array(select id from fresh union all select id from due union all select id from suspect));
        get diagnostics n = row_count;
        commit;
        exit when n = 0;
    end loop;
end
$do$;
