-- The sample of `outbox up`: an article catalogue in a schema of its own, and the view that makes documents of it.
-- To have it away: outbox detach outbox_sample.articles --yes, the same for authors; drop schema outbox_sample cascade.

create schema if not exists outbox_sample;

create table if not exists outbox_sample.authors (
    id    int primary key,
    name  text not null
);

create table if not exists outbox_sample.articles (
    id            bigint generated always as identity primary key,
    author_id     int not null references outbox_sample.authors,
    title         text not null,
    summary       text not null,
    tags          text[] not null,
    price         numeric(6, 2) not null,
    published_at  timestamptz not null default now(),
    updated_at    timestamptz not null default now()
);

create index if not exists articles_author_idx on outbox_sample.articles (author_id);

insert into outbox_sample.authors values
    (1, 'Ada Reed'), (2, 'Bo Lindqvist'), (3, 'Chiara Conti'), (4, 'Dmitri Orlov'), (5, 'Efua Mensah'), (6, 'Fen Li')
    on conflict do nothing;

create or replace function outbox_sample.one_of(words text[]) returns text
language sql volatile as $fn$
    select words[1 + floor(random() * cardinality(words))::int]
$fn$;

create or replace function outbox_sample.topic() returns text
language sql volatile as $fn$
    select outbox_sample.one_of(array['coffee', 'sourdough', 'bicycles', 'lighthouses', 'sailing', 'chess', 'beekeeping',
        'night trains', 'tea', 'maps', 'fountain pens', 'tide tables', 'wood stoves', 'street food', 'city parks'])
$fn$;

create or replace function outbox_sample.title_of(topic text) returns text
language sql volatile as $fn$
    select format(outbox_sample.one_of(array['A short history of %s', 'How to fall in love with %s', 'Ten mistakes with %s',
        'The quiet return of %s', 'What nobody tells you about %s', 'Notes on %s for beginners', 'A year of %s']), topic)
$fn$;

create or replace function outbox_sample.publish(n int default 1) returns void
language sql volatile as $fn$
    insert into outbox_sample.articles (author_id, title, summary, tags, price)
    select 1 + floor(random() * 6)::int, outbox_sample.title_of(t.topic),
           format('Everything about %s that fits on a page.', t.topic),
           array[t.topic, outbox_sample.one_of(array['essay', 'guide', 'interview', 'news'])],
           round((2 + random() * 38)::numeric, 2)
      from (select outbox_sample.topic() as topic, i from generate_series(1, n) as i) t
$fn$;

-- One change as an editor makes it: mostly edits, some new articles, some withdrawn ones.
create or replace function outbox_sample.change() returns text
language plpgsql volatile as $fn$
declare
    dice    float8 := random();
    total   bigint := (select count(*) from outbox_sample.articles);
    chosen  bigint := (select id from outbox_sample.articles order by random() limit 1);
begin
    if total < 200 or dice < 0.2 then
        perform outbox_sample.publish();
        return 'published';
    elsif total > 400 or dice < 0.35 then
        delete from outbox_sample.articles where id = chosen;
        return 'withdrawn';
    elsif dice < 0.6 then
        update outbox_sample.articles
           set title = outbox_sample.title_of(tags[1]), updated_at = now() where id = chosen;
        return 'renamed';
    end if;
    update outbox_sample.articles
       set price = greatest(1, round(price * (0.9 + random() * 0.2)::numeric, 2)), updated_at = now() where id = chosen;
    return 'repriced';
end
$fn$;

drop view if exists {view};
create view {view} as
select 'article'::text as entity_type,
       a.id as entity_id,
       json_build_object('title', a.title, 'summary', a.summary, 'author', u.name, 'tags', a.tags, 'price', a.price,
                         'published_at', a.published_at, 'updated_at', a.updated_at) as document
  from outbox_sample.articles a
  join outbox_sample.authors u on u.id = a.author_id;

comment on view {view} is 'made by outbox up';
