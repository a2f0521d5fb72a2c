-- A fan-out that is open is still expanded by it.
update {attachments} set closed_at = pg_catalog.clock_timestamp() where id = {id} and closed_at is null
