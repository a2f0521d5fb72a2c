-- Why:  what is attached, and by which query, is a row of ours that only the owner writes; a trigger's argument is its number.
--       They were arguments of triggers, which any owner of a table writes, and whose query was planned with the rights
--       of whoever opened a page. A number is computed from what it stands for, so that a script may hold it; a row changes
--       only by being closed or opened again. A closed one still expands its open fan-outs.
--       Which documents a change touches is decided after its commit: a trigger of `--via` writes one event `fanout` per
--       changed row, with the values that the query uses (`fanout_keys`), and a worker runs the query after the claim.
--       `fanout_cursor` is the last id that has its refresh, `fanout_written` how many have; `fanout_id`, of a refresh,
--       names its fan-out. All new columns are null in rows that are there, so nothing is rewritten.
--       `search_outbox_ignored_tables`: tables, or columns, that the view reads and nobody need attach.
-- Undo (after `outbox detach` of every table that is attached by a query, and once its fan-outs are done):
--   do $undo$
--   begin
--       if exists (select from search_outbox_attachments where via is not null and closed_at is null) then
--           raise exception 'tables are attached by a query, whose events the older program fails'
--               using hint = 'Run `outbox detach` for them, and attach them again with the older program.';
--       elsif exists (select from search_outbox_events
--                      where op = 'fanout' and processed_at is null and failed_at is null) then
--           raise exception 'fan-outs are open, which the older program fails'
--               using hint = 'Let a projector finish them, then stop it and run this again.';
--       end if;
--   end $undo$;
--   drop table if exists search_outbox_ignored_tables, search_outbox_attachments;
--   do $undo$
--   begin
--       if to_regprocedure('search_outbox_grant_roles()') is not null then
--           execute replace(replace(replace(pg_get_functiondef('search_outbox_grant_roles()'::regprocedure),
--                           'fanout_attachment, fanout_keys, ', ''),
--                           'insert (entity_type, entity_id, op, fanout_id), update (fanout_cursor, fanout_written, op,',
--                           'insert (entity_type, entity_id, op), update (op,'),
--                           ', search_outbox_attachments, search_outbox_ignored_tables', '');
--       end if;
--   end $undo$;
--   alter table search_outbox_events drop column if exists fanout_attachment, drop column if exists fanout_keys,
--       drop column if exists fanout_cursor, drop column if exists fanout_written, drop column if exists fanout_id;
--   delete from search_outbox_migrations where name = '0017_attachments';
-- Roles: projector, operator and reader SELECT on both tables; a producer's trigger inserts the keys of a fan-out.

create table search_outbox_attachments (
    id              bigint primary key,
    source          regclass not null,
    named           text not null,  -- the table as it was called then: for people, also when it is gone
    entity_type     text not null,
    id_column       text,
    via             text,
    used            text[] not null default '{}',  -- columns of the changed row that the query reads
    routing_column  text,
    columns         text[] not null default '{}',
    watched         text[] not null default '{}',  -- of updates, those that change one of these; none: all
    per_row         boolean not null,
    path            text[] not null,  -- where the names in the query are found
    partitions      int not null default 0,
    function        text not null,  -- of its triggers, in this schema
    attached_by     text not null default session_user,
    attached_at     timestamptz not null default clock_timestamp(),
    closed_at       timestamptz,
    check ((id_column is null) <> (via is null))
);

create table search_outbox_ignored_tables (
    source      regclass primary key,
    named       text not null,
    columns     text[] not null default '{}',  -- none: the whole table
    reason      text not null,
    ignored_by  text not null,
    ignored_at  timestamptz not null default clock_timestamp()
);

alter table search_outbox_events
    add column fanout_attachment bigint,
    add column fanout_keys json,
    add column fanout_cursor text,
    add column fanout_written bigint,
    add column fanout_id uuid;

do $do$
declare
    remaining text;
begin
    if to_regprocedure('search_outbox_grant_roles()') is not null then
        execute replace(replace(replace(replace(pg_get_functiondef('search_outbox_grant_roles()'::regprocedure),
            'traceparent, tracestate, created_at', 'traceparent, tracestate, fanout_attachment, fanout_keys, created_at'),
            'insert (entity_type, entity_id, op), update (op,',
            'insert (entity_type, entity_id, op, fanout_id), update (fanout_cursor, fanout_written, op,'),
            '''search_outbox_migrations'')',
            '''search_outbox_migrations, search_outbox_attachments, search_outbox_ignored_tables'')'),
            '''search_outbox_migrations, search_outbox_quotas',
            '''search_outbox_migrations, search_outbox_attachments, search_outbox_ignored_tables, search_outbox_quotas');
        select string_agg(statement, E'\n') into remaining from search_outbox_grant_roles() as statement
         where statement like '%search\_outbox\_attachments%' or statement like '%fanout\_%';
        if remaining is not null then
            raise warning 'the roles have no rights on search_outbox_attachments: they are not there'
                using hint = 'Everything works without them. When the roles are made: select search_outbox_grant_roles()';
        end if;
    end if;
end
$do$;
