-- What the nemesis adds to its own database beside the record of every step (labs/steps.sql): business rows, whose
-- documents travel in their events, and the view of the others: parents with notes and tags are one joined document each,
-- orders are documents that live where their customer's tenant says, unless the customer is banned or gone, and books are
-- documents over two hops, whose tables are attached (tests/nemesis/linked.py).
create table nemesis_rows (id text primary key, document json not null, version bigint not null);

-- No foreign keys: what a transaction does to a child must not wait for what another does to its parent.
create table nemesis_parents (id text primary key, title text not null, revision bigint not null);
create table nemesis_notes (id bigint generated always as identity primary key, parent_id text not null, note text not null);
create table nemesis_tags (id bigint generated always as identity primary key, parent_id text not null, tag text not null);
create index on nemesis_notes (parent_id);
create index on nemesis_tags (parent_id);

create table nemesis_customers (id text primary key, name text not null, tenant text not null, banned boolean not null);
insert into nemesis_customers select 'c' || n, 'customer ' || n, 'tenant ' || n % 12, false from generate_series(0, 59) n;
create table nemesis_orders (id text primary key, customer_id text not null, title text not null, revision bigint not null);
create index on nemesis_orders (customer_id);

create table nemesis_houses (id text primary key, name text not null);
create table nemesis_authors (id text primary key, house_id text not null, name text not null);
create table nemesis_books (id text primary key, author_id text not null, title text not null);
create index on nemesis_authors (house_id);
create index on nemesis_books (author_id);
insert into nemesis_houses select 'h' || n, 'house ' || n from generate_series(0, 39) n;
insert into nemesis_authors select 'a' || n, 'h' || n % 40, 'author ' || n from generate_series(0, 79) n;

create view search_documents as
select 'joined'::text as entity_type, p.id as entity_id,
       json_build_object(
           'title', p.title, 'kind', 'joined', 'revision', p.revision,
           'notes', (select coalesce(json_agg(n.note order by n.id), '[]') from nemesis_notes n where n.parent_id = p.id),
           'tags', (select coalesce(json_agg(t.tag order by t.id), '[]') from nemesis_tags t where t.parent_id = p.id)) as document,
       null as routing
  from nemesis_parents p
union all
select 'order', o.id,
       json_build_object('title', o.title, 'kind', 'order', 'revision', o.revision, 'content', c.name || ' of ' || c.tenant),
       c.tenant
  from nemesis_orders o join nemesis_customers c on c.id = o.customer_id
 where not c.banned
union all
select 'book', b.id,
       json_build_object('title', b.title, 'kind', 'book', 'content', a.name || ' of ' || h.name),
       null
  from nemesis_books b join nemesis_authors a on a.id = b.author_id join nemesis_houses h on h.id = a.house_id;

-- Events that daemons write themselves, and those of attached tables: nobody else knows of them.
create table recorded_refreshes (id uuid, entity_type text, entity_id text, op text, version bigint, payload text,
                                 at timestamptz default clock_timestamp());
create function record_refresh() returns trigger language plpgsql as $fn$
begin
    insert into recorded_refreshes values (new.id, new.entity_type, new.entity_id, new.op,
                                           case when new.op in ('upsert', 'delete') then new.event_version else 0 end,
                                           new.payload);
    return null;
end
$fn$;
create trigger record_refresh after insert on search_outbox_events for each row
    when (current_setting('recorded.who', true) is not null or new.entity_type = 'book')
    execute function record_refresh();
do $do$
begin
    if to_regclass('search_outbox_log') is not null then
        create trigger record_refresh after insert on search_outbox_log for each row
            when (new.entity_type = 'book') execute function record_refresh();
    end if;
end
$do$;

create index on recorded_steps (at);
create index on recorded_steps (old_token);
