-- What the lane of the neighbours adds to its own database. Innocents are rows of `plain` (their events carry payloads)
-- and of `viewed` (looked up); poison has rows in `viewed` too, whose title says what reading them does.
create table plain (id bigint primary key, title text not null, content text not null, revision bigint not null);
create table viewed (id bigint primary key, title text not null, content text not null, revision bigint not null);

create function computed(r viewed) returns json language plpgsql stable as $fn$
begin
    if r.title = 'slow' then perform pg_sleep(30); end if;
    if r.title like 'state %' then raise exception 'poison' using errcode = split_part(r.title, ' ', 2); end if;
    if r.title = 'null' then return null; end if;
    if r.title = 'array' then return '[]'; end if;
    return json_build_object('title', r.title, 'content', r.content, 'revision', r.revision);
end
$fn$;

-- Triggers of the user's that will not have some events in some states: their verdicts cannot be written.
create function refuse() returns trigger language plpgsql as $fn$ begin raise exception 'not this one'; end $fn$;
create trigger refuse_done before update on search_outbox_events for each row
    when (new.entity_type = 'refused' and new.status = 'done') execute function refuse();
create trigger refuse_ends before update on search_outbox_events for each row
    when (new.entity_type = 'never' and new.status in ('done', 'failed')) execute function refuse();
