-- Events that people ask for: one entity, projected again; events that repair the index.

-- name: ask
-- (nothing) -> pending.
insert into search_outbox_events (entity_type, entity_id, op, event_version, payload, routing)
values (%(entity_type)s, %(entity_id)s::{entity_id_type}, %(op)s,
        coalesce(%(version)s, nextval('search_outbox_version')), %(payload)s::json, %(routing)s)
returning id, event_version

-- name: refresh
-- (nothing) -> pending: a refresh of each entity.
insert into search_outbox_events (entity_type, entity_id, op)
select %(entity_type)s, entity_id::{entity_id_type}, 'refresh' from unnest(%(ids)s::text[]) as w (entity_id)

-- name: repair
-- Nothing -> pending: one event per document. The key names the repair, and keeps a repeated step from writing twice.
insert into search_outbox_events (entity_type, entity_id, op, event_version, payload, routing, idempotency_key)
select m.entity_type, m.entity_id::{entity_id_type}, m.op, coalesce(m.version, nextval('search_outbox_version')),
       m.payload::json, m.routing, m.key
  from unnest(%(types)s::text[], %(ids)s::text[], %(ops)s::text[], %(versions)s::bigint[], %(payloads)s::text[],
              %(routings)s::text[], %(keys)s::text[])
       as m (entity_type, entity_id, op, version, payload, routing, key)
    on conflict do nothing
