-- What the nemesis adds to its own database beside the record of every step (labs/steps.sql): business rows, whose
-- documents travel in their events, and the view of the others: parents with notes and tags are one joined document each, and
-- orders are documents that live where their customer's tenant says, unless the customer is banned or gone.
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
 where not c.banned;

-- Events that daemons write themselves: a refresh that is owed for what was written too late. Nobody else knows of them.
create table recorded_refreshes (id uuid, entity_type text, entity_id text, op text, at timestamptz default clock_timestamp());
create function record_refresh() returns trigger language plpgsql as $fn$
begin
    insert into recorded_refreshes values (new.id, new.entity_type, new.entity_id, new.op);
    return null;
end
$fn$;
create trigger record_refresh after insert on search_outbox_events for each row
    when (current_setting('recorded.who', true) is not null) execute function record_refresh();

create index on recorded_steps (at);
create index on recorded_steps (old_token);
