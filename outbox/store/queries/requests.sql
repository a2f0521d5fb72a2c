-- Events that people ask for: one entity, projected again.

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
