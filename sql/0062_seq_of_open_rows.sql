-- Why:  a producer that names every column, as some ORMs do, may write seq = null over the default. No claim would ever
--       see that row, and nobody would be told. The guard gives it a seq now; for all other rows its WHEN clause asks one
--       thing more, whether seq is null. Open rows that came that way before get theirs here, each kind by its own index.
-- Undo:
--   create or replace trigger search_outbox_guard
--       before insert or update on search_outbox_events
--       for each row
--       when ((new.processed_at is not null) <> (new.status in ('done', 'discarded'))
--          or (new.failed_at is not null) <> (new.status = 'failed'))
--       execute function search_outbox_guard();
--   delete from search_outbox_migrations where name = '0062_seq_of_open_rows';

create or replace trigger search_outbox_guard
    before insert or update on search_outbox_events
    for each row
    when ((new.processed_at is not null) <> (new.status in ('done', 'discarded'))
       or (new.failed_at is not null) <> (new.status = 'failed')
       or (new.seq is null and new.status in ('pending', 'processing')))
    execute function search_outbox_guard();

set local enable_seqscan = off;

update search_outbox_events set seq = nextval('search_outbox_seq')
 where processed_at is null and failed_at is null and next_retry_at is null and abandoned_count = 0 and seq is null;
update search_outbox_events set seq = nextval('search_outbox_seq')
 where processed_at is null and failed_at is null and next_retry_at is not null and abandoned_count = 0 and seq is null;
update search_outbox_events set seq = nextval('search_outbox_seq')
 where processed_at is null and failed_at is null and abandoned_count > 0 and seq is null;
