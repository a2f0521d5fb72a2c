-- Sets one step of the list right and takes it off the list. The row decides, not the list: it may have moved on.
with step as (
    delete from search_outbox_adoption
     where ordinal > %(after)s and ordinal <= %(upto)s
    returning ordinal, id, numbered
)
update search_outbox_events as e
   set seq = case when step.numbered then coalesce(e.seq, step.ordinal) else e.seq end,
       processed_at = case when e.status in ('done', 'discarded')
                           then coalesce(e.processed_at, e.updated_at, clock_timestamp()) end,
       failed_at = case when e.status = 'failed'
                        then coalesce(e.failed_at, e.processed_at, e.updated_at, clock_timestamp()) end
  from step
 where e.id = step.id;
