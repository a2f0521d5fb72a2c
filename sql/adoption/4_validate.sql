-- Checks the rows, without blocking writers.
alter table search_outbox_events validate constraint search_outbox_events_status_check;
