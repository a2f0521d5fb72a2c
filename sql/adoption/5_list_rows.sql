-- Lists the rows that need something, once: open and failed ones numbered in order of creation, then done ones without
-- a time. A list, because the table has no index by creation, and searching again at each step would be quadratic.
-- The guard is at work by now: rows that change or come later are right by themselves.
create table if not exists search_outbox_adoption as
    select row_number() over (order by numbered desc, created_at, id) as ordinal, id, numbered
      from (select id, created_at, status in ('pending', 'processing', 'failed') as numbered
              from search_outbox_events
             where (status in ('pending', 'processing', 'failed')
                    and (seq is null or processed_at is not null or (status = 'failed') <> (failed_at is not null)))
                or (status in ('done', 'discarded') and processed_at is null)) as unfinished;

alter table search_outbox_adoption add constraint search_outbox_adoption_pkey primary key (ordinal);
