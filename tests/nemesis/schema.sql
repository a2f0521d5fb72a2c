-- What the nemesis adds to its own database beside the record of every step (labs/steps.sql) and the tables and views of
-- its parts (tests/nemesis/parts.py): business rows, whose documents travel in their events.
create table nemesis_rows (id ID primary key, document json not null, version bigint not null);
create sequence nemesis_version;

-- Events that daemons write themselves, and those of attached tables: nobody else knows of them.
create table recorded_refreshes (id uuid, entity_type text, entity_id text, op text, version bigint, payload text,
                                 at timestamptz default clock_timestamp());
create function record_refresh() returns trigger language plpgsql as $fn$
begin
    -- By its whole name: a replicated row is inserted without a search path.
    insert into public.recorded_refreshes
    values (new.id, new.entity_type, new.entity_id, new.op,
            case when new.op in ('upsert', 'delete') then new.event_version else 0 end, new.payload);
    return null;
end
$fn$;
-- Whether triggers of `outbox attach` write the events of this type: none, until the parts of a run are made.
create function is_attached(text) returns boolean language sql immutable return false;
create trigger record_refresh after insert on search_outbox_events for each row
    when (current_setting('recorded.who', true) is not null or is_attached(new.entity_type))
    execute function record_refresh();
do $do$
begin
    if to_regclass('search_outbox_log') is not null then
        create trigger record_refresh after insert on search_outbox_log for each row
            when (is_attached(new.entity_type)) execute function record_refresh();
    end if;
end
$do$;

create index on recorded_steps (at);
create index on recorded_steps (old_token);
