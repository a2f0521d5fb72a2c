-- Sets one step of the list right and takes it off the list. The row decides, not the list: it may have moved on.
-- Rows that someone holds are skipped and stay on the list: waiting for them deadlocked with an old worker (tested).
with step as materialized (
    select ordinal, id, numbered from search_outbox_adoption
     where ordinal > %(after)s and ordinal <= %(upto)s
), free as materialized (
    select e.id from search_outbox_events as e
     where e.id = any (array(select id from step))
       for no key update skip locked
), filled as (
    update search_outbox_events as e
       set seq = case when step.numbered then coalesce(e.seq, step.ordinal) else e.seq end,
           processed_at = case when e.status in ('done', 'discarded')
                               then coalesce(e.processed_at, e.updated_at, clock_timestamp()) end,
           failed_at = case when e.status = 'failed'
                            then coalesce(e.failed_at, e.processed_at, e.updated_at, clock_timestamp()) end
      from step
     where e.id = step.id and e.id = any (array(select id from free))
    returning e.id
)
delete from search_outbox_adoption as l
 where l.ordinal > %(after)s and l.ordinal <= %(upto)s
   and (l.id in (select id from filled) or not exists (select from search_outbox_events as e where e.id = l.id));
