-- Why:  what PostgreSQL does behind the drain should cost it little.
--       Vacuum: it reads every index from end to end, so what it costs an event is the table's size divided by how many
--       events it waits for. It came at 1 % of dead rows: by reckoning, with ten million kept rows, as often as
--       autovacuum wakes up while a drain goes on. `bench flat` had 0.85 before and 0.913 with this and larger buffers.
--       Claims do not need it: they start behind what is finished, and what they meet dead they mark as dead. A tenth
--       is as much as the table may grow by between two of them.
--       Analyse: a sample of 30,000 rows with their payloads, of which no query asks anything; 6,000 without them tell
--       the planner the same in a tenth of the time (0.35 s -> 0.03 s on 200,000 rows, measured).
--       A column that someone has given a target of its own keeps it.
-- Undo:
--   alter table search_outbox_events set (autovacuum_vacuum_scale_factor = 0.01,
--       autovacuum_analyze_scale_factor = 0.02);
--   do $undo$
--   declare name text;
--   begin
--       for name in select attname from pg_attribute
--                    where attrelid = 'search_outbox_events'::regclass and attnum > 0 and not attisdropped
--                      and attstattarget in (0, 20)
--       loop
--           execute format('alter table search_outbox_events alter column %I set statistics -1', name);
--       end loop;
--   end $undo$;
--   delete from search_outbox_migrations where name = '0060_upkeep';

alter table search_outbox_events set (autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.1);

do $do$
declare name text;
begin
    for name in select attname from pg_attribute
                 where attrelid = 'search_outbox_events'::regclass and attnum > 0 and not attisdropped
                   and coalesce(attstattarget, -1) = -1
    loop
        execute format('alter table search_outbox_events alter column %I set statistics %s', name,
                       case when name in ('payload', 'error_detail') then 0 else 20 end);
    end loop;
end
$do$;
