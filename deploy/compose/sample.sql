-- Sample rows for the profile app, as search_outbox_producer: 300 articles and one that the mapping refuses, so that the
-- console has a failure to show. By the function, which writes to the event log where there is one. The keys make a second
-- run write nothing.
select count(outbox_enqueue('article', i::text, 'upsert',
           json_build_object('title', format('%s, part %s', (array['A year of coffee', 'Notes on night trains', 'Ten maps',
                                     'How to keep bees', 'The quiet return of chess'])[1 + i % 5], i),
                             'tags', array[(array['essay', 'guide', 'interview', 'news'])[1 + i % 4]],
                             'price', 2 + i % 40),
           idempotency_key => 'sample:' || i))
  from generate_series(1, 300) as i;

select count(outbox_enqueue('article', '301', 'upsert', '{"title": "Not for sale", "price": "on request"}',
           idempotency_key => 'sample:no-price'));
