-- Places of documents that have a routing. Rows are written in the order of their key: two workers meet no deadlock.

-- name: note
-- Before the write. A number never goes back; what is about to be written to is not cleared any more.
insert into search_outbox_places as p (entity_type, entity_id, gone, routing, drawn)
select * from unnest(%(types)s::text[], %(ids)s::text[], %(gone)s::boolean[], %(routings)s::text[], %(drawn)s::bigint[])
 order by 1, 2, 3, 4
on conflict (entity_type, entity_id, gone, routing) do update
   set drawn = greatest(p.drawn, excluded.drawn), noted_at = clock_timestamp(), cleared_at = null

-- name: of
-- Every place of these entities.
select p.entity_type, p.entity_id, p.gone, p.routing, p.drawn
  from unnest(%(types)s::text[], %(ids)s::text[]) as w (entity_type, entity_id)
  join search_outbox_places p on p.entity_type = w.entity_type and p.entity_id = w.entity_id

-- name: clear
-- Deletes there were acknowledged. Not where someone has written since.
update search_outbox_places p set cleared_at = clock_timestamp()
  from (select * from unnest(%(types)s::text[], %(ids)s::text[], %(gone)s::boolean[], %(routings)s::text[],
                             %(drawn)s::bigint[]) as w (entity_type, entity_id, gone, routing, drawn)) w
 where p.entity_type = w.entity_type and p.entity_id = w.entity_id and p.gone = w.gone and p.routing = w.routing
   and p.drawn = w.drawn
