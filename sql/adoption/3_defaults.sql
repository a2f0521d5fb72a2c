-- Gives defaults to the columns that lack one (a default that is there stays), the status check without reading the
-- rows yet, and the storage settings of 0002. All of it changes the catalogue only.
do $do$
declare
    wanted record;
begin
    for wanted in
        select d.name, d.expression
          from (values
                ('id', case when current_setting('server_version_num')::int < 180000
                            then 'search_outbox_uuidv7()' else 'uuidv7()' end),
                ('seq', 'nextval(''search_outbox_seq'')'),
                ('event_version', 'nextval(''search_outbox_version'')'),
                ('status', '''pending'''),
                ('attempts', '0'),
                ('replay_count', '0'),
                ('created_at', 'now()'),
                ('updated_at', 'now()')) as d (name, expression)
          join pg_attribute as a on a.attname = d.name and a.attrelid = 'search_outbox_events'::regclass
          left join pg_attrdef as old on old.adrelid = a.attrelid and old.adnum = a.attnum
         where a.attidentity = ''
           and (old.oid is null
                -- A constant would give every event of an entity the same version.
                or (a.attname = 'event_version' and pg_get_expr(old.adbin, old.adrelid) not like '%nextval(%'))
    loop
        execute format('alter table search_outbox_events alter column %I set default %s',
                       wanted.name, wanted.expression);
    end loop;
    if not exists (select from pg_constraint where conrelid = 'search_outbox_events'::regclass
                                               and conname = 'search_outbox_events_status_check') then
        alter table search_outbox_events add constraint search_outbox_events_status_check
            check (status in ('pending', 'processing', 'done', 'failed', 'discarded')) not valid;
    end if;
end
$do$;

alter table search_outbox_events set (
    fillfactor = 45,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_analyze_scale_factor = 0.1,
    autovacuum_analyze_threshold = 5000
);
