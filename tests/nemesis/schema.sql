-- What the nemesis adds to its own database beside the record of every step (labs/steps.sql): business rows, whose
-- documents travel in their events, and the view of the others: parents with notes and tags are one joined document each.
create table nemesis_rows (id text primary key, document json not null, version bigint not null);

-- No foreign keys: what a transaction does to a child must not wait for what another does to its parent.
create table nemesis_parents (id text primary key, title text not null, revision bigint not null);
create table nemesis_notes (id bigint generated always as identity primary key, parent_id text not null, note text not null);
create table nemesis_tags (id bigint generated always as identity primary key, parent_id text not null, tag text not null);
create index on nemesis_notes (parent_id);
create index on nemesis_tags (parent_id);

create view search_documents as
select 'joined'::text as entity_type, p.id as entity_id,
       json_build_object(
           'title', p.title, 'kind', 'joined', 'revision', p.revision,
           'notes', (select coalesce(json_agg(n.note order by n.id), '[]') from nemesis_notes n where n.parent_id = p.id),
           'tags', (select coalesce(json_agg(t.tag order by t.id), '[]') from nemesis_tags t where t.parent_id = p.id)) as document
  from nemesis_parents p;

create index on recorded_steps (at);
create index on recorded_steps (old_token);
