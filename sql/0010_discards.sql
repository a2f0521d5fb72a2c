-- Why:  pruning keeps a done delete while an older event of its entity is discarded, because a replay may bring that
--       one back. Nothing may index status, so discarded events are listed here by entity, whoever discards them: a
--       command, the console or a person with SQL. The statistics count them here too.
--       The log line `event.discarded` is written by a daemon, whoever has discarded the event: `told` makes it one
--       daemon, once. What was discarded before this table was there is not logged.
--       The triggers' WHEN is false for every claim and settle: two comparisons, lost in the noise of a drain
--       (measured). Their function has the owner's rights and refuses to run for another table than its own, as those
--       of the audit.
-- Undo:
--   drop trigger if exists search_outbox_discards on search_outbox_events;
--   drop trigger if exists search_outbox_discards_gone on search_outbox_events;
--   drop function if exists search_outbox_discards();
--   drop table if exists search_outbox_discards;
--   delete from search_outbox_migrations where name = '0010_discards';
-- Roles (granted by a later migration): operator, projector and reader SELECT, projector UPDATE (told); the triggers
--       write as the definer.

create table search_outbox_discards (
    event_id       uuid primary key,
    entity_type    text not null,
    entity_id      text not null,
    event_version  bigint not null,
    seq            bigint,
    at             timestamptz not null default clock_timestamp(),
    told           boolean not null default false
);
-- By its hash: an id may be longer than a btree entry.
create index search_outbox_discards_entity_id_idx on search_outbox_discards using hash (entity_id);
create index search_outbox_discards_untold_idx on search_outbox_discards (at) where not told;

insert into search_outbox_discards (event_id, entity_type, entity_id, event_version, seq, told)
select id, entity_type, entity_id::text, event_version, seq, true from search_outbox_events
 where processed_at is not null and status = 'discarded';

create or replace function search_outbox_discards() returns trigger
language plpgsql security definer set search_path from current as $fn$
begin
    -- A partition of the table, where someone made it a partitioned one, counts as the table.
    if coalesce(pg_partition_root(tg_relid), tg_relid) <> 'search_outbox_events'::regclass then
        raise exception '% is not for table %', 'search_outbox_discards()', tg_relid::regclass
            using errcode = 'insufficient_privilege';
    end if;
    if tg_op = 'UPDATE' and new.status = 'discarded' then
        insert into search_outbox_discards (event_id, entity_type, entity_id, event_version, seq)
        values (new.id, new.entity_type, new.entity_id::text, new.event_version, new.seq)
            on conflict (event_id) do nothing;
        return new;
    end if;
    delete from search_outbox_discards where event_id = old.id;
    return case when tg_op = 'UPDATE' then new else old end;
end
$fn$;

create or replace trigger search_outbox_discards
    before update on search_outbox_events
    for each row when ((new.status = 'discarded') <> (old.status = 'discarded'))
    execute function search_outbox_discards();

create or replace trigger search_outbox_discards_gone
    before delete on search_outbox_events
    for each row when (old.status = 'discarded')
    execute function search_outbox_discards();
