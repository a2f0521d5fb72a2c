"""fanout: one UPDATE of an author with many articles: what its transaction costs the writer, how long until the last
document, and how long single edits wait beside a fan-out of a million."""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import psycopg

from bench.arrivals import PACE, Arrivals
from bench.drain import warm_up
from bench.load import document_sql, rest, text_of
from bench.result import BenchmarkResult, Threshold, percentile, progress
from bench.stack import BenchmarkServers
from bench.worker import Daemons, daemons
from outbox.store.attach.attach import attach

WRITER = Threshold("UPDATE of an attached row, with its commit / without", 1.5, 1.2, most=True)
LEVEL = Threshold("the same with many documents / with ten", 1.1, 1.05, most=True)
RATE = Threshold("documents of one UPDATE / drain of as many refreshes", 0.7, 0.8)
BESIDE = Threshold("p99 of single edits beside a large fan-out, s", 2.0, 1.0, most=True)
# Or 1 ms longer: half of this. A transaction is hardly shorter than a commit, which is mostly the disk's.
SHORTEST_SECONDS = 0.002
TEN = 10

SIZE = 500
TABLES = """
create table authors (id bigint primary key, name text not null);
create table plain_authors (id bigint primary key, name text not null);
create table articles (id bigint primary key, author_id bigint not null, n int not null, made json not null);
insert into authors select g, 'Author ' || g from generate_series(1, 4) g;
insert into plain_authors select * from authors;
create view search_documents as
    select 'article'::text as entity_type, a.id as entity_id,
           json_build_object('title', a.made ->> 'title', 'n', a.n, 'body', a.made ->> 'body',
                             'author', u.name) as document
      from articles a join authors u on u.id = a.author_id;
"""
ARTICLES = f"""
insert into articles select (select coalesce(max(id), 0) from articles) + g, %s, g, {document_sql(SIZE - 40)}
  from generate_series(1, %s) g
"""
MANY, FEW, EDITED, LARGE = 1, 2, 3, 4  # authors, by how many articles they have
RENAME = "update authors set name = name || '.' where id = %s"
RENAME_PLAIN = "update plain_authors set name = name || '.' where id = %s"
EDIT = "update articles set n = n + 1 where id = %s"
REFRESHES = """
insert into search_outbox_events (entity_type, entity_id, op)
select 'article', id::text, 'refresh' from articles where author_id = %s
"""
SPAN = """
select extract(epoch from max(processed_at) - min(last_attempt_at))::float8,
       extract(epoch from min(last_attempt_at))::float8
  from search_outbox_events where op = 'refresh' and status = 'done'
"""
EMPTY = "truncate search_outbox_events, search_outbox_leases, search_outbox_attempts"
STILL_OPEN = "select exists (select from search_outbox_events where op = 'fanout' and processed_at is null)"


@dataclass(frozen=True, slots=True)
class Size:
    documents: int = 100_000
    large: int = 1_000_000
    renames: int = 300
    edits: int = 600


def run(stack: BenchmarkServers, *, smoke: bool = False, rounds: int = 3, **size: int) -> BenchmarkResult:
    """`--set`: documents, large (documents of the fan-out beside single edits), renames, edits."""
    chosen = Size(300, 2_000, 5, 10) if smoke else Size(**size)
    rounds = 1 if smoke else rounds
    result = BenchmarkResult("fanout", smoke)
    result.documents = f"{text_of(SIZE)}, of two joined tables"
    result.settings = {**asdict(chosen), "edits per second": PACE, "bytes per document": SIZE, "lanes": 2}
    with stack.database() as url, stack.index() as index, stack.index() as warm_index:
        if not smoke:
            warm_up(stack, url, warm_index, SIZE)
        stack.fresh_index(index)
        with psycopg.connect(url, autocommit=True) as connection:
            _tables(connection, chosen)
            with daemons(url, stack.elastic_url, index, paused=True) as running:
                side = Side(stack, url, index, connection, running, chosen, result)
                if not smoke:
                    side.drain()
                for number in range(rounds):
                    progress(f"round {number + 1} of {rounds}")
                    side.writer()
                    side.documents()
                    side.beside()
    for bar, name in ((WRITER, "attached / plain"), (LEVEL, "many / ten"), (RATE, "fan-out / drain")):
        result.judge(bar, name)
    result.judge(BESIDE, "edits beside it, p99")
    return result


def _tables(connection: psycopg.Connection, size: Size) -> None:
    progress(f"{size.documents + size.large:,} articles")
    connection.execute(TABLES)
    for author, articles in ((MANY, size.documents), (FEW, TEN), (EDITED, size.edits), (LARGE, size.large)):
        connection.execute(ARTICLES.encode(), [author, articles])
    connection.execute(EMPTY)  # the warm-up has left events with payloads, which a type of the view refuses
    connection.execute("create index on articles (author_id)")
    connection.execute("vacuum analyze articles, authors, plain_authors")
    attach(connection, "authors", entity_type="article", via="select id from articles where author_id = changed.id")
    attach(connection, "articles", entity_type="article", id_column="id")


@dataclass(slots=True)
class Side:
    """The parts of a round. Each begins with an empty table and a new index, the daemons paused, and ends so."""

    stack: BenchmarkServers
    url: str
    index: str
    connection: psycopg.Connection
    running: Daemons
    size: Size
    result: BenchmarkResult

    def writer(self) -> None:
        """By turns, each of them first as often as the others, so that they meet the same disk. A part of the commit is
        the disk's, and differs from one to the next: medians of many are compared."""
        acts: dict[str, Callable[[], object]] = {
            "without an attachment": lambda: self.connection.execute(RENAME_PLAIN, [MANY]),
            "ten documents": lambda: self.connection.execute(RENAME, [FEW]),
            "many documents": lambda: self.connection.execute(RENAME, [MANY]),
        }
        took: dict[str, list[float]] = {name: [] for name in acts}
        names = list(acts)
        for number, place in itertools.product(range(self.size.renames), range(len(names))):
            name = names[(number + place) % len(names)]
            began = time.perf_counter()
            acts[name]()
            took[name].append(time.perf_counter() - began)
        plain, ten, many = (statistics.median(each) for each in took.values())
        self._clear()
        for name, seconds in zip(acts, (plain, ten, many), strict=True):
            self.result.add(f"UPDATE, {name}", "ms", seconds * 1000)
        self.result.add("attached / plain", "", 1 + (many - plain) / max(plain, SHORTEST_SECONDS))
        self.result.add("many / ten", "", many / ten)

    def drain(self) -> float:
        """Refreshes per second. The first one of all is slower than any other: Java compiles, caches are empty."""
        self.connection.execute(REFRESHES, [MANY])
        rest(self.url)
        self.running.resume()
        rate = self.size.documents / self.running.wait_done(self.size.documents)
        self._clear()
        return rate

    def documents(self) -> None:
        drained = self.drain()
        self.running.resume()
        self.stack.quiet()
        self.connection.execute(RENAME, [MANY])
        committed = time.time()
        self.running.wait_done(self.size.documents + 1)
        row = self.connection.execute(SPAN).fetchone()
        assert row is not None
        span, first = row
        self._clear()
        self.result.add("drain of refreshes", "docs/s", drained)
        self.result.add("documents of one UPDATE", "docs/s", self.size.documents / span)
        self.result.add("commit to the first claim of a document", "ms", (first - committed) * 1000)
        self.result.add("fan-out / drain", "", self.size.documents / span / drained)

    def beside(self) -> None:
        """From commit to readable by id, of documents that the index lacks; the fan-out goes on all that time."""
        self.running.resume()
        self.stack.quiet()
        self.connection.execute(RENAME, [LARGE])
        took, missing = Arrivals(self.stack, self.index).at_pace(self.url, self.size.edits, self._edit)
        row = self.connection.execute(STILL_OPEN).fetchone()
        if missing or row is None or not (row[0] or self.result.smoke):
            raise RuntimeError(f"{missing} edits did not arrive, or the fan-out ended before them")
        self._clear()
        for share, name in ((0.5, "p50"), (0.99, "p99")):
            self.result.add(f"edits beside it, {name}", "s", percentile(took, share))

    def _edit(self, connection: psycopg.Connection, number: int) -> str:
        id = self.size.documents + TEN + number
        connection.execute(EDIT, [id])
        return f"article:{id}"

    def _clear(self) -> None:
        self.running.pause()
        self.connection.execute(EMPTY)
        rest(self.url)
        self.stack.fresh_index(self.index)
