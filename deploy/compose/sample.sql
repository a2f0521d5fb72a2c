-- Sample rows for the profile app, as search_outbox_producer: 300 articles and one event that fails, so that the console
-- has something to show. The keys make a second run write nothing.
insert into search_outbox_events (entity_type, entity_id, op, payload, idempotency_key)
select 'article', i::text, 'upsert',
       json_build_object('title', format('%s, part %s', (array['A year of coffee', 'Notes on night trains', 'Ten maps',
                                 'How to keep bees', 'The quiet return of chess'])[1 + i % 5], i),
                         'tags', array[(array['essay', 'guide', 'interview', 'news'])[1 + i % 4]],
                         'price', 2 + i % 40),
       'sample:' || i
  from generate_series(1, 300) as i
    on conflict do nothing;

insert into search_outbox_events (entity_type, entity_id, op, idempotency_key)
values ('article', '1', 'not-a-real-op', 'sample:bad-op')
    on conflict do nothing;
