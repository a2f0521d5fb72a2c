-- Why:  people write status by hand, the indexes look at the times. The guard sets right what contradicts, so that
--       `status='pending'` on a failed row gets it projected. Its WHEN clause is false for every row that the
--       product writes: it costs the drain 0 to 2 us an event (measured).
--       A row finished before adoption has no seq; when it is opened again it gets one here, or no claim would see it.
-- Undo:
--   drop trigger if exists search_outbox_guard on search_outbox_events;
--   drop function if exists search_outbox_guard();
--   delete from search_outbox_migrations where name = '0003_guard';

create or replace function search_outbox_guard() returns trigger
language plpgsql set search_path from current as $fn$
begin
    if new.status in ('done', 'discarded') then
        new.processed_at := coalesce(new.processed_at, clock_timestamp());
        new.failed_at := null;
    elsif new.status = 'failed' then
        new.failed_at := coalesce(new.failed_at, clock_timestamp());
        new.processed_at := null;
    else
        new.processed_at := null;
        new.failed_at := null;
        new.seq := coalesce(new.seq, nextval('search_outbox_seq'));
    end if;
    if new.status <> 'processing' then
        new.owner := null;
        new.lease_until := null;
        new.processing_started_at := null;
        new.next_retry_at := null;
    end if;
    if new.status = 'pending' then
        new.attempts := 0;
        new.abandoned_count := 0;
    end if;
    if new.status in ('pending', 'done') then
        new.error_reason := null;
        new.error_code := null;
        new.error := null;
        new.error_fingerprint := null;
        new.error_detail := null;
        new.dead_reason := null;
    end if;
    new.updated_at := clock_timestamp();
    return new;
end
$fn$;

create or replace trigger search_outbox_guard
    before insert or update on search_outbox_events
    for each row
    when ((new.processed_at is not null) <> (new.status in ('done', 'discarded'))
       or (new.failed_at is not null) <> (new.status = 'failed'))
    execute function search_outbox_guard();
