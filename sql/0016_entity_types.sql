-- Why:  an entity type is kept by the view or by payloads, and that is declared here, never guessed from recent events.
--       `versions`: whose the versions of a payload type are, drawn from our sequence or given by the producer. `moving`: it
--       was changed, and its documents are not all brought over yet. Only a change of what is there raises the revision: a
--       claim keeps it in its lease, and a settle under another one changes nothing, so that the batch is done again.
--       A lease without a revision is that of an older program, which knows no declarations. Once `outbox migrate --finish`
--       has found that none of them runs, PostgreSQL refuses their claims; where no worker was ever here, at once.
--       Where the view has a column `routing`, each place of a document is a row of search_outbox_places from before it is
--       written until after its delete was acknowledged. `routing` '' is none, as for Elasticsearch; `gone` is a place too.
-- Undo:
--   do $undo$
--   begin
--       if to_regprocedure('search_outbox_grant_roles()') is not null then
--           execute replace(replace(replace(pg_get_functiondef('search_outbox_grant_roles()'::regprocedure),
--                           'insert (entity_type, entity_id, op), ', ''),
--                           'search_outbox_raise_version, search_outbox_catch_up to', 'search_outbox_raise_version to'),
--                           ', search_outbox_entity_types, search_outbox_types_revision, search_outbox_places', '');
--       end if;
--   end $undo$;
--   drop function if exists search_outbox_catch_up(), search_outbox_given_out();
--   alter table search_outbox_leases drop column if exists revision;
--   alter table search_outbox_workers drop column if exists knows_types;
--   drop table if exists search_outbox_entity_types, search_outbox_types_revision, search_outbox_places;
--   delete from search_outbox_migrations where name = '0016_entity_types';
-- Roles: projector and operator SELECT, INSERT, UPDATE, DELETE; reader SELECT. The projector may insert a refresh.

create table search_outbox_entity_types (
    entity_type  text primary key,
    kept_by      text not null check (kept_by in ('view', 'payload')),
    versions     text not null default 'ours' check (versions in ('ours', 'producer')),
    moving       boolean not null default false,
    declared_by  text not null,
    declared_at  timestamptz not null default clock_timestamp()
);

create table search_outbox_types_revision (
    single    boolean primary key default true check (single),
    revision  bigint not null
);
insert into search_outbox_types_revision (revision) values (1);

create table search_outbox_places (
    entity_type  text not null,
    entity_id    text not null,
    gone         boolean not null default false,
    routing      text not null default '',
    drawn        bigint not null,
    noted_at     timestamptz not null default clock_timestamp(),
    cleared_at   timestamptz,
    primary key (entity_type, entity_id, gone, routing)
) with (fillfactor = 70);
create index search_outbox_places_cleared_idx on search_outbox_places (cleared_at) where cleared_at is not null;

alter table search_outbox_leases add column revision bigint;
-- Set by a program that knows declarations and places.
alter table search_outbox_workers add column knows_types boolean not null default false;

-- The highest version of ours that rows tell of. Of types with producers' own versions only what lookups drew counts.
create or replace function search_outbox_given_out() returns bigint
language sql stable set search_path from current as $fn$
    select max(greatest(case when t.kept_by = 'view' or t.versions = 'ours' then n.event_version end, n.read_version))
      from ((select entity_type, event_version, read_version from search_outbox_events
              where processed_at is not null order by processed_at desc limit 10000)
            union all
            (select entity_type, event_version, read_version from search_outbox_events
              where failed_at is not null order by failed_at desc limit 10000)
            union all
            (select entity_type, event_version, read_version from search_outbox_events
              where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0
              order by seq desc limit 10000)) n
      join search_outbox_entity_types t using (entity_type)
$fn$;

-- Rows came without their sequence, by a dump of data only or by logical replication, which carries none: it goes above
-- them. Open events that have drawn from it meanwhile get new versions in their order, unless one of their entity with a
-- version from before may be newer: projected, or while it is open written, after them. Where the entity has no such event
-- its newest delete may be pruned, which waits for all that is older. The owner's rights, because nobody else may change a
-- version.
create or replace function search_outbox_catch_up(out was bigint, out given_out bigint, out renumbered bigint)
language plpgsql security definer set search_path from current as $fn$
begin
    given_out := search_outbox_given_out();
    select last_value into was from search_outbox_version;
    if given_out is null or given_out <= was then
        given_out := null;
        return;
    end if;
    perform search_outbox_raise_version(given_out);
    update search_outbox_events e set event_version = n.version
      from (select id, nextval('search_outbox_version') as version
              from (select o.id from search_outbox_events o
                      join search_outbox_entity_types t on t.entity_type = o.entity_type
                       and t.kept_by = 'payload' and t.versions = 'ours'
                     where o.processed_at is null and o.failed_at is null and o.status = 'pending'
                       and o.event_version <= was
                       and not exists (select from search_outbox_events d
                                        where d.entity_type = o.entity_type and d.entity_id = o.entity_id
                                          and d.event_version > was
                                          and coalesce(d.processed_at, d.created_at) >= o.created_at)
                     order by o.seq) late) n
     where e.id = n.id;
    get diagnostics renumbered = row_count;
end
$fn$;
revoke execute on function search_outbox_catch_up() from public;

do $do$
declare
    remaining text;
begin
    execute format('alter function search_outbox_catch_up() set search_path = pg_catalog, %I, pg_temp', current_schema());
    execute format('alter function search_outbox_given_out() set search_path = pg_catalog, %I, pg_temp', current_schema());
    if not exists (select from search_outbox_workers) and not exists (select from search_outbox_leases) then
        alter table search_outbox_leases alter column revision set not null;
    end if;
    if to_regprocedure('search_outbox_grant_roles()') is not null then
        -- Beside tables that each role has with the same rights.
        execute replace(replace(replace(replace(replace(pg_get_functiondef('search_outbox_grant_roles()'::regprocedure),
            'search_outbox_leases, search_outbox_workers, ''',
            'search_outbox_leases, search_outbox_workers, search_outbox_entity_types, search_outbox_types_revision, '
            'search_outbox_places, '''),
            'search_outbox_verifications, search_outbox_backfills',
            'search_outbox_verifications, search_outbox_entity_types, search_outbox_types_revision, search_outbox_places, '
            'search_outbox_backfills'),
            '(''reader'', ''select'', ''search_outbox_backfills',
            '(''reader'', ''select'', ''search_outbox_backfills, search_outbox_entity_types, search_outbox_types_revision, '
            'search_outbox_places'),
            -- A refresh of what was written too late.
            'select, delete, update (op,', 'select, delete, insert (entity_type, entity_id, op), update (op,'),
            'search_outbox_raise_version to', 'search_outbox_raise_version, search_outbox_catch_up to');
        select string_agg(statement, E'\n') into remaining from search_outbox_grant_roles() as statement
         where statement like '%search\_outbox\_entity\_types%' or statement like '%search\_outbox\_catch\_up%';
        if remaining is not null then
            raise warning 'the roles have no rights on search_outbox_entity_types and search_outbox_places: they are not there'
                using hint = 'Everything works without them. When the roles are made: select search_outbox_grant_roles()';
        end if;
    end if;
end
$do$;
