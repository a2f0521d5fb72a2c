-- What is declared of entity types. Inserts raise no revision: who does not know a type asks for it.

-- name: declared
-- Reads: every declaration, and the revision; a row without a type where nothing is declared.
select r.revision, t.entity_type, t.kept_by, t.versions, t.moving, t.declared_by, t.declared_at
  from search_outbox_types_revision r left join search_outbox_entity_types t on true
 order by t.entity_type collate "C"

-- name: declared_of
-- Reads: the same of these types alone.
select r.revision, t.entity_type, t.kept_by, t.versions, t.moving, t.declared_by, t.declared_at
  from search_outbox_types_revision r
  left join search_outbox_entity_types t on t.entity_type = any (%(types)s::text[])

-- name: declare
-- The first one wins, and is read back by the next statement.
insert into search_outbox_entity_types (entity_type, kept_by, versions, declared_by)
select * from unnest(%(types)s::text[], %(kept_by)s::text[], %(versions)s::text[], %(by)s::text[])
on conflict (entity_type) do nothing

-- name: change
-- What is there, or a new one. Whoever prunes holds a share lock on the row.
insert into search_outbox_entity_types (entity_type, kept_by, versions, moving, declared_by)
values (%(entity_type)s, %(kept_by)s, %(versions)s, %(moving)s, %(by)s)
on conflict (entity_type) do update
   set kept_by = excluded.kept_by, versions = excluded.versions, moving = excluded.moving,
       declared_by = excluded.declared_by, declared_at = clock_timestamp()

-- name: raise_revision
-- Every batch in flight is done again.
update search_outbox_types_revision set revision = revision + 1

-- name: older_batches
-- Batches that were claimed under an older revision and may still be written; how many workers hold them.
select count(*) from search_outbox_leases
 where revision is distinct from (select revision from search_outbox_types_revision)
   and lease_until > clock_timestamp() - interval '60 seconds'

-- name: take_back
-- Declarations by a first event that was refused. What was done of a type was done after its declaration.
delete from search_outbox_entity_types t
 where t.entity_type = any (%(types)s::text[]) and t.declared_by = %(by)s
   and not exists (select from search_outbox_events e
                    where e.processed_at >= t.declared_at and e.entity_type = t.entity_type and e.status = 'done')

-- name: kept_by_view
-- Those of these types that the view keeps, locked so that nobody changes them until the transaction ends.
select entity_type from search_outbox_entity_types
 where entity_type = any (%(types)s::text[]) and kept_by = 'view' and not moving
   for share
