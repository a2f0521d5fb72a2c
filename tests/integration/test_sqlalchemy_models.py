"""`outbox.sqlalchemy.track`: which objects of a flush are refreshed, and what is not seen."""

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any, cast
from weakref import ref

import pytest
from sqlalchemy import (
    Column,
    Engine,
    ForeignKey,
    Table,
    create_engine,
    delete,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    column_property,
    mapped_column,
    relationship,
    scoped_session,
    sessionmaker,
)

from outbox.errors import NoTransaction, WrongArgument
from outbox.sqlalchemy import UntrackedStatement, by, track, written
from tests.fixtures.pgbouncer import Pgbouncer
from tests.fixtures.producers import NO_CACHE, UNPREPARED, driver
from tests.fixtures.queue import EventTable
from tests.fixtures.queue import refreshed as told
from tests.fixtures.waiting import PATIENCE_SECONDS


class Base(DeclarativeBase):
    pass


article_tag = Table(
    "article_tag",
    Base.metadata,
    Column("article_id", ForeignKey("article.id"), primary_key=True),
    Column("tag_id", ForeignKey("tag.id"), primary_key=True),
)


class Tag(Base):
    __tablename__ = "tag"
    id: Mapped[int] = mapped_column(primary_key=True)
    articles: Mapped[list["Article"]] = relationship(secondary=article_tag, back_populates="tags")


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="")
    tenant: Mapped[str | None]
    comments: Mapped[list["Comment"]] = relationship(cascade="all, delete-orphan")
    comment_count: Mapped[int] = column_property(literal_column("1"))
    notes: Mapped[list["Note"]] = relationship()
    tags: Mapped[list[Tag]] = relationship(secondary=article_tag, back_populates="articles")


class Comment(Base):
    __tablename__ = "comment"
    id: Mapped[int] = mapped_column(primary_key=True)
    article_id: Mapped[int | None] = mapped_column(ForeignKey("article.id"))
    text: Mapped[str] = mapped_column(default="")


class Note(Base):
    """Beside its article, without a cascade: its key becomes null when the article goes."""

    __tablename__ = "note"
    id: Mapped[int] = mapped_column(primary_key=True)
    article_id: Mapped[int | None] = mapped_column(ForeignKey("article.id"))
    article: Mapped[Article | None] = relationship(overlaps="notes")


class Rejoinder(Comment):
    """A table of its own beside its parent's, which has the key."""

    __tablename__ = "reply"
    id: Mapped[int] = mapped_column(ForeignKey("comment.id"), primary_key=True)
    tone: Mapped[str] = mapped_column(default="")


class Pair(Base):
    __tablename__ = "pair"
    left: Mapped[int] = mapped_column(primary_key=True)
    right: Mapped[int] = mapped_column(primary_key=True)


MODELS: Any = {
    Article: by("article", Article.id, routing=Article.tenant),
    Comment: by("article", Comment.article_id),
    Note: ["note", by("article", Note.article_id)],
}
Maker = sessionmaker[Session]


@pytest.fixture
def engine(queue: EventTable, database: str) -> Iterator[Engine]:
    engine = create_engine(driver(database, "psycopg"), connect_args=UNPREPARED)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def maker(engine: Engine) -> Maker:
    maker = sessionmaker(engine)
    track(maker, MODELS)
    return maker


def two_articles(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        session.add_all([Article(id=1, comments=[Comment(id=1)]), Article(id=2)])
    assert told(queue) == ["article:1", "article:2"]


def test_inserted_changed_and_deleted_objects_are_refreshed_once_per_flush(maker: Maker, queue: EventTable) -> None:
    two_articles(maker, queue)
    with maker.begin() as session:
        article = session.get_one(Article, 1)
        (comment,) = article.comments
        article.title, comment.text = "new", "changed"
    assert told(queue) == ["article:1"]
    with maker.begin() as session:
        session.delete(session.get_one(Article, 2))
    assert told(queue) == ["article:2"]
    with maker.begin() as session:
        session.get_one(Article, 1).title = "new"  # no value differs
    assert told(queue) == []


def test_ids_that_the_database_gives_are_known(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        article = Article(comments=[Comment(), Comment()])
        session.add(article)
        session.flush()
        id = article.id
    assert told(queue) == [f"article:{id}"]


def test_a_child_that_moves_refreshes_both_owners(maker: Maker, queue: EventTable) -> None:
    two_articles(maker, queue)
    with maker.begin() as session:
        session.get_one(Comment, 1).article_id = 2
    assert told(queue) == ["article:1", "article:2"]


def test_the_old_owner_is_known_also_where_it_was_never_loaded(maker: Maker, queue: EventTable) -> None:
    two_articles(maker, queue)
    with maker() as session:
        comment = session.get_one(Comment, 1)
        session.commit()  # all values expire
        comment.article_id = 2
        session.commit()
        assert told(queue) == ["article:1", "article:2"]
        comment.article_id = select(func.min(Article.id)).scalar_subquery()
        session.commit()
        assert told(queue) == ["article:1", "article:2"]
        session.expire(comment)
        session.delete(comment)
        session.commit()
    assert told(queue) == ["article:1"]


def test_relationships_move_children_too(maker: Maker, queue: EventTable) -> None:
    two_articles(maker, queue)
    with maker.begin() as session:  # a collection without a way back: the child itself was not touched
        article = session.get_one(Article, 1)
        article.notes.append(Note(id=1))
    told(queue)
    with maker.begin() as session:
        note, two = session.get_one(Note, 1), session.get_one(Article, 2)
        two.notes.append(note)
    assert told(queue) == ["article:1", "article:2", "note:1"]
    with maker.begin() as session:
        note, one = session.get_one(Note, 1), session.get_one(Article, 1)
        note.article = one
    assert told(queue) == ["article:1", "article:2", "note:1"]
    with maker.begin() as session:
        one = session.get_one(Article, 1)
        one.comments.clear()  # an orphan
    assert told(queue) == ["article:1"]
    with maker.begin() as session:
        session.delete(session.get_one(Article, 1))  # its note keeps living, without it
    assert told(queue) == ["article:1", "note:1"]


def test_a_child_class_is_tracked_with_its_parent(maker: Maker, queue: EventTable) -> None:
    two_articles(maker, queue)
    with maker() as session:
        reply = Rejoinder(id=5, article_id=1)
        session.add(reply)
        session.commit()
        assert told(queue) == ["article:1"]
        reply.tone = "kind"  # only the child's own table
        session.commit()
        assert told(queue) == ["article:1"]
        session.refresh(reply)
        session.expire(reply, ["article_id"])
        reply.article_id = 2
        session.commit()
        assert told(queue) == ["article:1", "article:2"]
        with pytest.warns(UntrackedStatement, match="changes reply without a flush"):
            session.execute(update(Rejoinder.__table__).values(tone="x"))  # type: ignore[arg-type]
        session.delete(reply)
        session.commit()
    assert told(queue) == ["article:2"]


def test_a_changed_set_of_tags_refreshes_the_article(maker: Maker, queue: EventTable) -> None:
    two_articles(maker, queue)
    with maker.begin() as session:
        article = session.get_one(Article, 2)
        article.tags.append(Tag(id=5))
    assert told(queue) == ["article:2"]


def test_tags_that_changed_from_their_side_refresh_the_article(maker: Maker, queue: EventTable) -> None:
    """`article.tags` is never loaded: SQLAlchemy itself does not call the article modified."""
    two_articles(maker, queue)
    with maker.begin() as session:
        session.add(Tag(id=5, articles=[session.get_one(Article, 1)]))
    assert told(queue) == ["article:1"]
    with maker.begin() as session:
        tag = session.get_one(Tag, 5)
        tag.articles.append(session.get_one(Article, 2))
    assert told(queue) == ["article:2"]
    with maker.begin() as session:
        tag = session.get_one(Tag, 5)
        tag.articles.clear()
    assert told(queue) == ["article:1", "article:2"]
    with maker.begin() as session:
        tag = session.get_one(Tag, 5)
        article = session.get_one(Article, 1)
        tag.articles.append(article)
        tag.articles.remove(article)  # nothing differs
    assert told(queue) == []


def test_an_object_in_the_place_of_a_deleted_one_refreshes_both_owners(maker: Maker, queue: EventTable) -> None:
    """One flush: SQLAlchemy makes one UPDATE of the two."""
    two_articles(maker, queue)
    with maker.begin() as session:
        session.delete(session.get_one(Comment, 1))
        session.add(Comment(id=1, article_id=2))
    assert told(queue) == ["article:1", "article:2"]
    with maker.begin() as session:
        session.delete(session.get_one(Comment, 1))
        session.add(Comment(id=1, article_id=2, text="another"))
    assert told(queue) == ["article:2"]
    assert queue.value("select text from comment") == "another"


def test_routing_is_that_of_before_and_that_of_now(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        session.add(Article(id=1, tenant="a"))
    with maker.begin() as session:
        session.get_one(Article, 1).tenant = "b"
    with maker.begin() as session:
        session.delete(session.get_one(Article, 1))
    assert [row.routing for row in queue.rows()] == ["a", "a", "b", "b"]


def test_a_rollback_writes_nothing_and_a_savepoint_takes_back_its_own(maker: Maker, queue: EventTable) -> None:
    with maker() as session:
        session.add(Article(id=1))
        session.flush()
        session.rollback()
        assert written(session) == []
        session.add(Article(id=2))
        session.flush()
        inside = session.begin_nested()
        session.add(Article(id=3))
        session.flush()
        inside.rollback()
        session.add(Article(id=4))
        session.commit()
        ids = written(session)
    assert [row.entity_id for row in queue.rows()] == ["2", "4"]
    assert ids == [row.id for row in queue.rows()]


def test_what_was_written_is_known_until_another_transaction_writes(maker: Maker, queue: EventTable) -> None:
    with maker() as session:
        article = Article(id=1)
        session.add(article)
        session.commit()
        (first,) = written(session)
        session.refresh(article)  # begins a transaction
        assert written(session) == [first]
        session.commit()
        assert written(session) == [first]
        article.title = "new"
        session.commit()
        (second,) = written(session)
    assert [first, second] == [row.id for row in queue.rows()]


def test_a_session_that_is_tracked_by_itself_leaves_nothing_behind(engine: Engine, queue: EventTable) -> None:
    alive = []
    for id in range(5):
        with Session(engine) as session:
            track(session, {Article: "article"})
            session.add(Article(id=id))
            session.commit()
        alive.append(ref(session))
        del session
    gc.collect()
    assert [each() for each in alive] == [None] * 5
    assert told(queue) == [f"article:{id}" for id in range(5)]


def test_a_class_of_asynchronous_sessions_is_tracked_without_all_others(
    engine: Engine, database: str, queue: EventTable
) -> None:
    class Own(AsyncSession):
        pass

    track(Own, {Article: "article"})
    with Session(engine) as session:
        session.add(Article(id=1))
        session.commit()
    assert told(queue) == []

    async def run() -> None:
        made = create_async_engine(driver(database, "asyncpg"), connect_args=NO_CACHE)
        for id, kind in ((2, Own), (3, AsyncSession)):
            async with kind(made) as own:
                own.add(Article(id=id))
                await own.commit()
        await made.dispose()

    asyncio.run(run())
    assert told(queue) == ["article:2"]


def test_only_the_sessions_that_are_tracked_write(maker: Maker, engine: Engine, queue: EventTable) -> None:
    with Session(engine) as session:
        session.add(Article(id=1, comments=[Comment()]))
        session.commit()
        session.delete(session.get_one(Article, 1))
        session.commit()
        assert written(session) == []
    assert told(queue) == []


def test_a_statement_without_a_flush_is_named_with_the_command_that_helps(maker: Maker, queue: EventTable) -> None:
    two_articles(maker, queue)
    statements = (update(Comment).values(text="x"), delete(Comment), insert(Comment).values(id=9, article_id=1))
    with maker.begin() as session:
        for statement in statements:
            attach = r"outbox attach comment --type article --id article_id"
            with pytest.warns(UntrackedStatement, match=attach) as warned:
                session.execute(statement)
            assert [each.filename for each in warned] == [__file__]  # where the statement is, not in SQLAlchemy
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            session.execute(select(Comment))
            session.execute(insert(Tag).values(id=1))  # not tracked
    assert told(queue) == []


def test_two_threads_write_each_its_own(maker: Maker, queue: EventTable) -> None:
    together = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    failed: list[BaseException] = []

    def produce(first: int) -> None:
        try:
            for id in range(first, first + 6):
                with maker() as session:
                    session.add(Article(id=id))
                    session.flush()
                    together.wait()
                    session.commit() if id % 2 == 0 else session.rollback()
        except BaseException as error:
            failed.append(error)
            together.abort()

    threads = [threading.Thread(target=produce, args=(first,)) for first in (10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert failed == []
    assert told(queue) == [f"article:{id}" for id in (10, 12, 14, 20, 22, 24)]


def test_autocommit_is_refused_before_the_row_is_written(database: str, queue: EventTable, engine: Engine) -> None:
    alone = sessionmaker(create_engine(driver(database, "psycopg"), isolation_level="AUTOCOMMIT"))
    track(alone, {Article: "article"})
    with alone() as session:
        session.add(Article(id=1))
        with pytest.raises(NoTransaction, match="AUTOCOMMIT"):
            session.flush()
    alone.kw["bind"].dispose()
    assert queue.value("select count(*) from article") == 0


@pytest.mark.parametrize("name", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "behind pgbouncer"])
def test_asynchronous_sessions_are_tracked(
    engine: Engine, queue: EventTable, database: str, postgres_url: str, name: str, pooled: bool
) -> None:
    async def run(url: str) -> list[Any]:
        options = UNPREPARED if name == "psycopg" else NO_CACHE
        made = create_async_engine(driver(url, name), connect_args=options)
        maker = async_sessionmaker(made)
        track(maker, MODELS)
        async with maker() as session:
            session.add_all([Article(id=1, comments=[Comment(id=1)]), Article(id=2)])
            await session.commit()
            assert len(written(session)) == 2
            comment = await session.get_one(Comment, 1)
            await session.commit()
            comment.article_id = 2  # expired: nothing may be loaded here
            await session.commit()
            session.add(Article(id=3))
            await session.flush()
            await session.rollback()
        async with AsyncSession(made) as other:  # of no maker that is tracked
            other.add(Article(id=4))
            await other.commit()
        await made.dispose()
        return told(queue)

    if pooled:
        with Pgbouncer.temporary(server_url=postgres_url) as pooler:
            found = asyncio.run(run(pooler.before(database)))
    else:
        found = asyncio.run(run(database))
    assert found == ["article:1", "article:1", "article:2", "article:2"]


def test_a_wrong_argument_is_refused_when_it_is_given(engine: Engine) -> None:
    models: Any
    for models, complaint in (
        ({Pair: "pair"}, r"several columns.*by\(\"pair\", Pair\.x\)"),
        ({Comment: by("article", Article.id)}, "no column of Comment"),
        ({Note: by("article", Note.article)}, "no column of Note"),
        ({Article: by("article", Article.comment_count)}, "no column of Article"),
        ({Note: by("article", "article_id")}, "'article_id' is no attribute of Note.*Note.x"),  # type: ignore[arg-type]
        ({Note: by("article", Note.id, routing="id")}, "'id' is no attribute of Note"),  # type: ignore[arg-type]
        ({dict: "article"}, "not a mapped class"),
        ({Note: ""}, "Note has no entity type. Give"),
        ({Note: []}, "Note has no owner. Give"),
        ({Note: None}, "Note has no owner. Give"),
        ({Note: ["note", 7]}, "Note has no entity type. Give"),
        ([Note], "name the models as"),
    ):
        with pytest.raises(WrongArgument, match=complaint) as refused:
            track(sessionmaker(), models)
        assert "--help" not in str(refused.value)  # of a command
    sessions: Any
    for sessions in (engine, scoped_session(cast(Any, lambda: Session(engine))), async_scoped_session, None):
        with pytest.raises(WrongArgument, match=r"makes no sessions\. Give a sessionmaker"):
            track(sessions, MODELS)


def test_a_database_without_our_tables_is_named_with_the_remedy(empty_database: str) -> None:
    engine = create_engine(driver(empty_database, "psycopg"))
    Base.metadata.create_all(engine)
    sessions = sessionmaker(engine)
    track(sessions, {Article: "article"})
    with pytest.raises(Exception, match="does not exist") as raised, sessions.begin() as session:
        session.add(Article(id=1))
    assert "run `outbox migrate` there" in raised.value.__notes__[-1]
    engine.dispose()
