-- Puts both sequences above what is here, and never back. The million is room for what producers insert between this
-- count and the moment when seq has its default.
select setval('search_outbox_seq', greatest(
           (select last_value from search_outbox_seq),
           (select count(*) + 1000000 from search_outbox_events
             where status in ('pending', 'processing', 'failed') and seq is null))),
       setval('search_outbox_version', greatest(
           (select last_value from search_outbox_version),
           (select coalesce(max(event_version), 0) from search_outbox_events)));
