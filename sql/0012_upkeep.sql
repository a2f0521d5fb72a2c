-- Why:  what PostgreSQL does in the background should cost the drain little, on a table of ours and on an adopted one.
--       Analyse: a sample of 30,000 rows with their payloads, of which no query asks anything; 6,000 without them
--       tell the planner the same in a tenth of the time (0.35 s -> 0.03 s on 200,000 rows, measured). The largest
--       target of all columns sets the size of the sample. A column that someone has given a target of its own keeps
--       it.
--       Key: a settle is no HOT update, so it puts a second entry for the row into the primary key. In pages that were
--       filled to 90 % it splits them; at 60 % there is room until the first entry is known to be dead and taken out.
--       Measured with 120,000 events of 500 bytes, 20,000 in and 20,000 out by turns: 5.6 MB instead of 7.4 at the end,
--       and a settle by 3 to 30 % cheaper. It counts for pages to come; nothing is rewritten. An index that someone has
--       given options of its own keeps them.
-- Undo:
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
--   do $undo$
--   declare key regclass;
--   begin
--       select i.indexrelid into key from pg_index i join pg_class c on c.oid = i.indexrelid
--        where i.indrelid = 'search_outbox_events'::regclass and i.indisprimary
--          and c.reloptions = array['fillfactor=60'];
--       if key is not null then
--           execute format('alter index %s reset (fillfactor)', key);
--       end if;
--   end $undo$;
--   delete from search_outbox_migrations where name = '0012_upkeep';

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

do $do$
declare key regclass;
begin
    select i.indexrelid into key from pg_index i join pg_class c on c.oid = i.indexrelid
     where i.indrelid = 'search_outbox_events'::regclass and i.indisprimary and c.reloptions is null;
    if key is not null then
        execute format('alter index %s set (fillfactor = 60)', key);
    end if;
end
$do$;
