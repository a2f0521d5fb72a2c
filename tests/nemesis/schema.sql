-- What the nemesis adds to its own database: business rows, the view of their documents, and a log of every step of
-- every event. Parents with notes and tags are one joined document each, which refreshes keep: they have no version. `nemesis.who` names the process that made a step: it stands in that process's DATABASE_URL. Written in
-- the step's own transaction, so what a crash of PostgreSQL takes back, it takes back here too.
create table nemesis_rows (id text primary key, kind text not null, document json not null, version bigint not null);

-- No foreign keys: what a transaction does to a child must not wait for what another does to its parent.
create table nemesis_parents (id text primary key, title text not null, revision bigint not null);
create table nemesis_notes (id bigint generated always as identity primary key, parent_id text not null, note text not null);
create table nemesis_tags (id bigint generated always as identity primary key, parent_id text not null, tag text not null);
create index on nemesis_notes (parent_id);
create index on nemesis_tags (parent_id);

create view search_documents as
select kind as entity_type, id as entity_id, document, version from nemesis_rows
union all
select 'joined', p.id,
       json_build_object(
           'title', p.title, 'kind', 'joined', 'revision', p.revision,
           'notes', (select coalesce(json_agg(n.note order by n.id), '[]') from nemesis_notes n where n.parent_id = p.id),
           'tags', (select coalesce(json_agg(t.tag order by t.id), '[]') from nemesis_tags t where t.parent_id = p.id)),
       null
  from nemesis_parents p;

create table nemesis_steps (
    n            bigint generated always as identity primary key,
    at           timestamptz not null default clock_timestamp(),
    event_id     uuid not null,
    who          text,
    app          text,
    old_status   text,
    new_status   text,
    old_token    uuid,
    new_token    uuid,
    lease_left   float8,
    old_attempts int not null,
    attempts     int,
    abandoned    int,
    replays      int,
    reason       text,
    dead_reason  text
);
create index on nemesis_steps (at);
create index on nemesis_steps (old_token);

create function nemesis_note() returns trigger language plpgsql as $fn$
begin
    if tg_op = 'DELETE' then
        insert into nemesis_steps (event_id, who, app, old_status, old_token, old_attempts)
        values (old.id, current_setting('nemesis.who', true), current_setting('application_name'), old.status,
                old.lease_token, old.attempts);
        return null;
    end if;
    insert into nemesis_steps (event_id, who, app, old_status, new_status, old_token, new_token, lease_left,
                               old_attempts, attempts, abandoned, replays, reason, dead_reason)
    values (new.id, current_setting('nemesis.who', true), current_setting('application_name'), old.status, new.status,
            old.lease_token, new.lease_token, extract(epoch from old.lease_until - clock_timestamp()),
            old.attempts, new.attempts, new.abandoned_count, new.replay_count, new.error_reason, new.dead_reason);
    return null;
end
$fn$;

create trigger nemesis_note after update on search_outbox_events for each row
    when (old.status is distinct from new.status or old.lease_token is distinct from new.lease_token)
    execute function nemesis_note();
create trigger nemesis_note_removal after delete on search_outbox_events for each row execute function nemesis_note();
