-- Events that people ask for: one entity, projected again.

-- name: ask
-- (nothing) -> pending.
insert into search_outbox_events (entity_type, entity_id, op, event_version, payload, routing)
values (%(entity_type)s, %(entity_id)s::{entity_id_type}, %(op)s, %(version)s, %(payload)s::json, %(routing)s)
returning id
