-- Why:  people write status by hand, the indexes use the times. The guard corrects what contradicts, so that
--       `status='pending'` on a failed row gets it projected. Its WHEN clause is false for every row that the product
--       writes: it costs the drain 0 to 2 us per event (measured).
--       A row finished before adoption has no seq; when it is opened again it gets one here, or no claim would see it.
--       The same for a producer that names every column, as some ORMs do, and writes seq = null over the default: the
--       rest of such a row stays as it was written.
--       An INSERT has a guard of its own, with a short WHEN: PostgreSQL parses that clause anew for every statement,
--       and a producer's insert of one row took 99 us instead of 118 (medians of 15 turns each, on a noisy machine).
--       Two values of a producer would break what comes later. An entity type of over 2,704 bytes does not fit into the
--       index of failures, whose lists need the type itself: a failed row keeps its first 513 characters. That is still
--       more than a document's id may have, so a replay is refused as the event was. And abandoned_count below 0, which
--       no claim searches for, becomes 0. Neither costs an event that is valid: the conditions are evaluated for failed
--       rows and for inserts.
-- Undo:
--   drop trigger if exists search_outbox_guard on search_outbox_events;
--   drop trigger if exists search_outbox_guard_insert on search_outbox_events;
--   drop function if exists search_outbox_guard();
--   delete from search_outbox_migrations where name = '0003_guard';

create or replace function search_outbox_guard() returns trigger
language plpgsql set search_path from current as $fn$
begin
    new.abandoned_count := greatest(new.abandoned_count, 0);
    if new.status = 'failed' then
        new.entity_type := left(new.entity_type, 513);
    end if;
    if (new.processed_at is not null) = (new.status in ('done', 'discarded'))
       and (new.failed_at is not null) = (new.status = 'failed') then
        if new.status in ('pending', 'processing') then
            new.seq := coalesce(new.seq, nextval('search_outbox_seq'));
        end if;
        return new;
    end if;
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

create or replace trigger search_outbox_guard_insert
    before insert on search_outbox_events
    for each row
    when (new.status <> 'pending' or new.seq is null or new.processed_at is not null or new.failed_at is not null
       or new.abandoned_count < 0)
    execute function search_outbox_guard();

create or replace trigger search_outbox_guard
    before update on search_outbox_events
    for each row
    when ((new.processed_at is not null) <> (new.status in ('done', 'discarded'))
       or (new.failed_at is not null) <> (new.status = 'failed')
       or (new.seq is null and new.status in ('pending', 'processing'))
       or new.failed_at is not null)  -- names no entity_type: its type could not be changed any more
    execute function search_outbox_guard();
