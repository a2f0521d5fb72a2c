"""`outbox.sqlalchemy.track`: whose document a row changes is what the row says, in PostgreSQL's text."""

import warnings
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum, StrEnum
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import (
    CHAR,
    Boolean,
    Column,
    Computed,
    Dialect,
    Engine,
    ForeignKey,
    Numeric,
    Table,
    Text,
    TypeDecorator,
    Uuid,
    create_engine,
    event,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.declarative import ConcreteBase
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, scoped_session, sessionmaker

from outbox.errors import NoTransaction
from outbox.sqlalchemy import Models, UntrackedStatement, by, track, written
from tests.fixtures.producers import UNPREPARED, driver
from tests.fixtures.queue import EventTable, refreshed


class Base(DeclarativeBase):
    pass


tag_article = Table(
    "tag_article",
    Base.metadata,
    Column("tag_id", ForeignKey("tag.id"), primary_key=True),
    Column("article_id", ForeignKey("article.id"), primary_key=True),
)


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(default="")
    changes: Mapped[int] = mapped_column(default=0)
    replies: Mapped[list["Riposte"]] = relationship(post_update=True)


class Tag(Base):
    """Articles do not know of it."""

    __tablename__ = "tag"
    id: Mapped[int] = mapped_column(primary_key=True)
    articles: Mapped[list[Article]] = relationship(secondary=tag_article)


class Comment(Base):
    __tablename__ = "comment"
    id: Mapped[int] = mapped_column(primary_key=True)
    article_id: Mapped[int | None]
    text: Mapped[str] = mapped_column(default="")
    kind: Mapped[str] = mapped_column(default="comment")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "comment"}  # noqa: RUF012


class Retort(Comment):
    __tablename__ = "retort"
    id: Mapped[int] = mapped_column(ForeignKey("comment.id"), primary_key=True)
    __mapper_args__ = {"polymorphic_identity": "retort"}  # noqa: RUF012


class Remark(Base):
    """Its column is written after its row."""

    __tablename__ = "remark"
    id: Mapped[int] = mapped_column(primary_key=True)
    article_id: Mapped[int | None] = mapped_column(ForeignKey("article.id"))
    article: Mapped[Article | None] = relationship(post_update=True)


class Riposte(Base):
    __tablename__ = "reply"
    id: Mapped[int] = mapped_column(primary_key=True)
    article_id: Mapped[int | None] = mapped_column(ForeignKey("article.id"))


class Employee(Base):
    __tablename__ = "employee"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "employee"}  # noqa: RUF012


class Manager(Employee):
    __mapper_args__ = {"polymorphic_identity": "manager"}  # noqa: RUF012


class Engineer(Employee):
    __mapper_args__ = {"polymorphic_identity": "engineer"}  # noqa: RUF012


class Place(Base):
    __tablename__ = "place"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    zone: Mapped[str] = mapped_column(Computed("lower(name)"))


class Sober(ConcreteBase, Base):
    __tablename__ = "plain"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "plain", "concrete": True}  # noqa: RUF012


class Fancy(Sober):
    __tablename__ = "fancy"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[int]
    __mapper_args__ = {"polymorphic_identity": "fancy", "concrete": True}  # noqa: RUF012


class Edge(Base):
    __tablename__ = "link"
    left: Mapped[int] = mapped_column(primary_key=True)
    right: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[int]


class Lower(TypeDecorator[str]):
    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else value.lower()


class Flag(TypeDecorator[bool]):
    impl = Boolean
    cache_ok = True


class Colour(Enum):
    RED = "r"


class Letter(StrEnum):
    A = "a"


class Typed(Base):
    __tablename__ = "typed"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    uuid: Mapped[UUID | None]
    digits: Mapped[UUID | None] = mapped_column(Uuid(native_uuid=False))  # char(32)
    lower: Mapped[str | None] = mapped_column(Lower)
    number: Mapped[Decimal | None] = mapped_column(Numeric(6, 2))
    short: Mapped[str | None] = mapped_column(CHAR(4))
    flag: Mapped[bool | None] = mapped_column(Flag)
    yes: Mapped[bool | None]
    colour: Mapped[Colour | None]
    name: Mapped[str | None]


TYPED = ("uuid", "digits", "lower", "number", "short", "flag", "yes", "colour", "name")
MODELS: Models = {
    Article: "article",
    Comment: by("article", Comment.article_id),
    Remark: by("article", Remark.article_id),
    Riposte: by("article", Riposte.article_id),
    Manager: "manager",
    Place: by("place", Place.id, routing=Place.zone),
    Sober: by("plain", Sober.owner),
    Edge: [by("left", Edge.left), by("owner", Edge.owner)],
    Typed: ["typed", *(by(name, getattr(Typed, name)) for name in TYPED)],
}
Maker = sessionmaker[Session]
told = partial(refreshed, with_routing=True)
SPELLED = "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"


@pytest.fixture
def engine(queue: EventTable, database: str) -> Iterator[Engine]:
    engine = create_engine(driver(database, "psycopg"), connect_args=UNPREPARED)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def maker(engine: Engine, queue: EventTable) -> Maker:
    maker = sessionmaker(engine)
    with maker.begin() as session:
        session.add_all([*(Article(id=id) for id in (1, 2, 3)), Comment(id=1, article_id=1), Comment(id=2)])
        session.add_all([Tag(id=1), Remark(id=1), Riposte(id=1), Manager(id=1), Place(id=1, name="AA")])
        session.add_all([Sober(id=1, owner=1), Fancy(id=2, owner=1), Edge(left=1, right=2, owner=3)])
    track(maker, MODELS)
    return maker


def moved(session: Session, article_id: int) -> None:
    session.get_one(Comment, 1).article_id = article_id


@pytest.mark.parametrize("act", ["changed", "moved", "deleted"])
def test_a_row_that_somebody_else_moved_refreshes_the_entity_that_has_it_now(
    maker: Maker, queue: EventTable, act: str
) -> None:
    with maker() as mine:
        comment = mine.get_one(Comment, 1)  # of article 1
        with maker.begin() as other:
            moved(other, 2)
        assert told(queue) == ["article:1", "article:2"]
        match act:
            case "changed":
                comment.text = "new"
            case "moved":
                comment.article_id = 3
            case "deleted":
                mine.delete(comment)
        mine.commit()
    assert "article:2" in told(queue)


def test_a_flush_waits_for_whoever_is_moving_the_row(maker: Maker, queue: EventTable, database: str) -> None:
    """Between our reading of the owner and the UPDATE nobody can move the row: the reading locks it."""
    impatient = create_engine(driver(database, "psycopg"), connect_args={"options": "-c lock_timeout=100ms"})
    with maker() as mine, impatient.connect() as other:
        mine.get_one(Comment, 1).text = "new"

        @event.listens_for(mine.connection(), "before_cursor_execute")
        def move(_: Any, __: Any, statement: str, *___: Any) -> None:
            if statement.startswith("UPDATE comment"):
                with pytest.raises(Exception, match="lock timeout"):
                    other.execute(text("update comment set article_id = 2 where id = 1"))
                other.rollback()
                other.execute(text("select from comment where id = 1 for key share"))  # of a foreign key: not blocked
                other.rollback()
                tried.append(statement)

        tried: list[str] = []
        mine.commit()
    impatient.dispose()
    assert (len(tried), told(queue)) == (1, ["article:1"])


def test_the_rows_of_a_class_are_read_by_one_query_and_none_for_a_primary_key(
    maker: Maker, engine: Engine, queue: EventTable
) -> None:
    with maker.begin() as session:
        session.add_all([Comment(id=id, article_id=id) for id in range(10, 40)])
    told(queue)
    asked: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _, __, statement, *___: asked.append(statement))
    with maker() as session:
        comments = session.scalars(select(Comment).where(Comment.id >= 10)).all()
        session.get_one(Article, 1).title = "new"
        for comment in comments:
            comment.text = "new"
        asked.clear()
        session.flush()
        (read,) = (each for each in asked if each.startswith("SELECT comment"))
        assert "ORDER BY comment.id FOR NO KEY UPDATE OF comment" in read
        assert not [each for each in asked if each.startswith("SELECT article")]
        for comment in comments:
            session.delete(comment)
        asked.clear()
        session.flush()
        (read,) = (each for each in asked if each.startswith("SELECT comment"))
        assert "ORDER BY comment.id FOR UPDATE OF comment" in read
        session.commit()
    assert len(told(queue)) == 30 + 30 + 1


def test_rows_of_one_hierarchy_are_locked_class_by_class(maker: Maker, engine: Engine, queue: EventTable) -> None:
    """By what a flush happens to have, two of them could lock the same rows in two orders."""
    with maker.begin() as session:
        session.add_all([Comment(id=10), Retort(id=11), Comment(id=12), Retort(id=13)])
    asked: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _, __, statement, *___: asked.append(statement))
    for first in (10, 11):
        with maker.begin() as session:
            for comment in session.scalars(select(Comment).where(Comment.id >= first)):
                comment.article_id = first
            asked.clear()
            session.flush()
        reads = [each for each in asked if each.startswith("SELECT comment")]
        assert ["JOIN retort" in each for each in reads] == [False, True]
    assert told(queue) == ["article:10", "article:10", "article:11"]


def test_a_column_that_is_written_after_its_row_is_known(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        session.add(Remark(id=2, article=session.get_one(Article, 1)))
    assert told(queue) == ["article:1"]
    with maker.begin() as session:
        session.get_one(Remark, 2).article = session.get_one(Article, 2)
    assert told(queue) == ["article:1", "article:2"]
    with maker.begin() as session:
        session.delete(session.get_one(Remark, 2))  # set to null first, then deleted
    assert told(queue) == ["article:2"]
    for article_id in (1, 2):
        with maker.begin() as session:
            article = session.get_one(Article, article_id)
            article.replies.append(session.get_one(Riposte, 1))
        assert told(queue) == sorted({"article:1", f"article:{article_id}"})


def test_members_of_a_collection_that_they_do_not_know_of_are_refreshed(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        tag = session.get_one(Tag, 1)
        tag.articles.append(session.get_one(Article, 1))
    assert told(queue) == ["article:1"]
    with maker.begin() as session:
        tag = session.get_one(Tag, 1)
        tag.articles = [session.get_one(Article, 2)]
        session.add(Tag(id=2, articles=[session.get_one(Article, 3), Article(id=4)]))
    assert told(queue) == ["article:1", "article:2", "article:3", "article:4"]
    with maker.begin() as session:
        tag = session.get_one(Tag, 1)
        tag.articles.clear()
    assert told(queue) == ["article:2"]
    with maker.begin() as session:
        session.delete(session.get_one(Tag, 2))
    assert told(queue) == ["article:3", "article:4"]


def test_an_object_in_the_place_of_one_of_another_class_refreshes_both(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        session.delete(session.get_one(Manager, 1))
        session.add(Engineer(id=1))
    assert told(queue) == ["manager:1"]
    with maker.begin() as session:
        session.delete(session.get_one(Engineer, 1))
        session.add(Manager(id=1))
    assert told(queue) == ["manager:1"]


@pytest.mark.parametrize("value", [lambda article: article.changes + 1, lambda _: func.length("abc")])
def test_what_a_listener_of_the_program_changes_is_seen(maker: Maker, queue: EventTable, value: Any) -> None:
    def count(_: Any, __: Any, article: Article) -> None:
        article.changes = value(article)

    event.listen(Article, "before_update", count)  # after ours
    try:
        with maker.begin() as session:
            article = session.get_one(Article, 1)
            article.title = str(article.title)  # no value differs
    finally:
        event.remove(Article, "before_update", count)
    assert told(queue) == ["article:1"]


def test_a_key_that_changes_with_a_routing_that_the_database_computes(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        place = session.get_one(Place, 1)
        place.id, place.name = 2, "BB"
    assert told(queue) == ["place:1@aa", "place:2@bb"]


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("uuid", SPELLED, SPELLED.lower()),
        ("uuid", SPELLED.replace("-", ""), SPELLED.lower()),
        ("uuid", UUID(SPELLED), SPELLED.lower()),
        ("digits", UUID(SPELLED), SPELLED.lower().replace("-", "")),
        ("lower", "Ann@Example.org", "ann@example.org"),
        ("number", Decimal("1.5"), "1.50"),
        ("number", Decimal("1E+2"), "100.00"),
        ("number", 2, "2.00"),
        ("short", "ab", "ab"),
        ("flag", True, "true"),
        ("yes", False, "false"),
        ("colour", Colour.RED, "RED"),
        ("name", "Ann", "Ann"),
        ("name", Letter.A, "a"),
    ],
)
def test_an_id_is_the_text_that_postgresql_has_for_it(
    maker: Maker, queue: EventTable, name: str, value: object, wanted: str
) -> None:
    own = "typed:" + SPELLED.lower()
    with maker() as session:
        typed = Typed(id=SPELLED, **{name: value})
        session.add(typed)
        session.flush()
        setattr(typed, name, None)
        session.commit()
        assert told(queue) == sorted([f"{name}:{wanted}", f"{name}:{wanted}", own, own])
        setattr(typed, name, value)
        session.commit()
        assert told(queue) == sorted([f"{name}:{wanted}", own])
    with maker.begin() as session:
        session.delete(session.get_one(Typed, UUID(SPELLED)))
    assert told(queue) == sorted([f"{name}:{wanted}", own])


def test_tables_of_concrete_classes_are_read_without_their_union(maker: Maker, queue: EventTable) -> None:
    with warnings.catch_warnings(), maker.begin() as session:
        warnings.simplefilter("error")
        for thing in (session.get_one(Sober, 1), session.get_one(Fancy, 2)):
            thing.owner += 4
    assert told(queue) == ["plain:1", "plain:5"]


def test_a_primary_key_of_several_columns(maker: Maker, queue: EventTable) -> None:
    with maker.begin() as session:
        session.add(Edge(left=1, right=3, owner=4))
    with maker.begin() as session:
        for link in session.scalars(select(Edge)):
            link.owner += 2
    assert told(queue) == sorted(["left:1", "owner:4", "left:1", "owner:3", "owner:4", "owner:5", "owner:6"])


def add(session: Session, *ids: int) -> None:
    for id in ids:
        session.add(Article(id=id))
        session.flush()


def test_ids_of_events_that_were_rolled_back_are_not_given(maker: Maker, queue: EventTable) -> None:
    session = maker()
    with pytest.raises(IntegrityError), session.begin():
        add(session, 10, 1)  # the second is there already
    assert written(session) == []
    with maker() as session:
        add(session, 10)
    assert (written(session), told(queue)) == ([], [])
    with maker() as session:
        add(session, 10)
        with session.begin_nested():
            add(session, 11)
        with pytest.raises(IntegrityError), session.begin_nested():
            add(session, 12, 1)
        outer = session.begin_nested()
        with session.begin_nested():
            add(session, 12)
        outer.rollback()
        add(session, 13)
        assert written(session) == []  # not committed yet
        session.commit()
        session.get_one(Article, 10)
        assert written(session) == [row.id for row in queue.rows()]
    assert told(queue) == ["article:10", "article:11", "article:13"]


def test_ids_of_a_session_of_the_thread(engine: Engine, queue: EventTable) -> None:
    sessions = scoped_session(sessionmaker(engine))
    track(sessions, MODELS)
    sessions.add(Article(id=10))
    sessions.commit()
    assert written(sessions) == [row.id for row in queue.rows()]
    sessions.remove()


def test_a_statement_that_loads_what_it_changes_is_named(maker: Maker, queue: EventTable) -> None:
    upsert = insert(Comment).values(id=1).on_conflict_do_update(index_elements=["id"], set_={"text": "x"})
    with maker.begin() as session:
        for statement in (upsert.returning(Comment), update(Comment).values(text="y").returning(Comment)):
            with pytest.warns(UntrackedStatement, match="changes comment without a flush"):
                assert session.scalars(select(Comment).from_statement(statement)).all()
    assert told(queue) == []


def test_autocommit_is_refused_also_for_members_of_a_collection(database: str, maker: Maker) -> None:
    alone = create_engine(driver(database, "psycopg"), isolation_level="AUTOCOMMIT")
    with Session(alone) as session:
        track(session, MODELS)
        tag = session.get_one(Tag, 1)
        tag.articles.append(session.get_one(Article, 1))
        with pytest.raises(NoTransaction, match="AUTOCOMMIT"):
            session.flush()
    alone.dispose()
