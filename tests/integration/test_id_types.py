"""Ids of the view in each type that can name a document: looked up, walked, compared, rebuilt. Others are refused."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from outbox.embedded import EmbeddedPostgres
from outbox.errors import DocumentsUnavailable
from outbox.policy.document import BATCH_BYTES
from outbox.policy.drift import Key
from outbox.reindex import key_bounds
from outbox.reindex.key_bounds import KeyBounds
from outbox.reindex.parts import cut
from outbox.store.documents import ViewDocuments
from outbox.store.events import Wanted
from outbox.store.schema.migrate import migrate
from outbox.store.truth import PostgresTruth
from outbox.store.view_shape import UnsupportedIds, names_an_id
from tests.fixtures.postgres import fresh_database
from tests.fixtures.queue import EventTable, fresh_queue
from tests.fixtures.servers import POSTGRES_SETTINGS

DEBIAN = Path("/usr/lib/postgresql/15/bin")
DEBIANS_CITEXT = Path("/usr/share/postgresql/15/extension/citext.control")
TYPES = """
create type size as enum ('small', 'middle', 'LARGE', 'very large');
create domain sku as char(8) check (value ~ '^[a-z]');
create domain code as varchar(6) check (length(value) > 1);
create domain inner_number as bigint check (value > 0);
create domain number as inner_number check (value < 100);
create domain price as numeric(10, 2) not null;
create domain day as date check (value > '2000-01-01');
create domain half_size as size check (value <> 'LARGE');
create domain token as uuid;
"""
ULIDS = ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01BX5ZZKBKACTAV9WEVGEMMVRZ")
UUIDS = ("00000000-0000-4000-8000-00000000000a", "ffffffff-0000-4000-8000-00000000000b")


class Case(NamedTuple):
    type: str
    ids: tuple[str, ...]  # by their own order
    others: tuple[str, ...]  # what no row is called


CASES = [
    Case("char(26)", (*ULIDS, "ab", "b"), ("0", "ab ", ULIDS[0].lower(), ULIDS[0] + "X")),
    Case("varchar(5)", ("10", "9", "a"), ("a ", "109876", "A")),
    Case("text", ("A", "B", "a", "é"), ("a ", "b", "e\u0301", "\x00")),
    Case("uuid", UUIDS, (UUIDS[0].upper(), UUIDS[0].replace("-", ""), f"{{{UUIDS[0]}}}", "abc")),
    Case("smallint", ("-1", "0", "7", "10"), ("007", "7 ", "+7", "70000", "7.0", "abc")),
    Case("integer", ("-1", "7", "10"), ("3000000000", "0x7", "1_0", "-0")),
    Case("bigint", ("-9223372036854775808", "7", "9223372036854775807"), ("9223372036854775808", "7e0")),
    Case(
        "numeric", ("-1.5", "1", "1.0", "1.00", "2", "10", "Infinity", "NaN"), ("1.", "01", "1e0", "2.0", ".5", "nan")
    ),
    Case("numeric(10, 2)", ("1.00", "1.01"), ("1", "1.005", "1.0")),
    Case(
        "date",
        ("-infinity", "0044-03-15 BC", "2024-02-29", "2024-03-01", "12024-01-01", "infinity"),
        ("2024-2-29", "29.02.2024", "2023-02-29", "today", "epoch", "0000-01-01", "2024-02-29 BC", "20240229"),
    ),
    Case("size", ("small", "middle", "LARGE", "very large"), ("large", "huge", "")),
    Case("sku", ("ab", "zz12"), ("AB", "ab ", "abcdefghijk", "")),
    Case("code", ("ab", "abc"), ("a", "abcdefgh")),
    Case("number", ("7", "10"), ("0", "100", "-7", "abc")),
    Case("price", ("1.00", "1.50"), ("1.5", "1.504", "99999999999", "x")),
    Case("day", ("2024-01-31", "2024-02-01"), ("1999-01-01", "2024-01-32")),
    Case("half_size", ("small", "middle"), ("LARGE", "huge")),
    Case("token", UUIDS, (UUIDS[0].upper(), "abc")),
]
# Outside the search path a bare `>` of citext would be that of text, and pages would follow two orders.
CONTRIB = """
create schema extensions;
create extension citext schema extensions;
create domain email as extensions.citext check (value <> '');
create collation by_language (provider = icu, locale = 'und');
create collation either_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
"""
CONTRIB_CASES = [
    Case("extensions.citext", ("ABC", "abc", "b", "C"), ("Abc", "B", "c")),
    Case("email", ("ABC", "abc", "b", "C"), ("Abc", "B", "c", "")),
    Case("char(9) collate by_language", ("a", "B", "c"), ("A", "a  ", "")),
    Case("text collate by_language", ("a", "A", "ab", "B", "é", "f"), ("a ", "b", "e", "e\u0301")),
    Case("text collate either_case", ("ABC", "abc", "b"), ("Abc", "B")),
    Case("varchar(5) collate either_case", ("ABC", "abc", "b"), ("Abc", "B")),
]


class Ids:
    """Ids of one type in a table of their own, beside its view."""

    def __init__(self, queue: EventTable, case: Case, name: str) -> None:
        self.case, self.view = case, f"{name}_documents"
        execute = queue.connection.execute
        execute(f"create table {name} (id {case.type})".encode())
        execute(f"create index on {name} (id)".encode())
        for id in sorted(case.ids):
            execute(f"insert into {name} values (%s)".encode(), [id])
        execute(
            f"create view {self.view} as select 'thing'::text as entity_type, id as entity_id,"
            f" json_build_object('id', id) as document from {name}".encode()
        )
        self.documents = ViewDocuments(queue.pool(), self.view, batch_bytes=BATCH_BYTES)
        self.truth = PostgresTruth(queue.pool(), self.view)

    def looked_up(self, ids: tuple[str, ...]) -> list[bool]:
        """Whether each is there; all in one read."""
        reads: list[int] = []
        read = self.documents._read

        def counted(part: Any, *rest: Any) -> Any:
            reads.append(len(part))
            return read(part, *rest)

        self.documents._read = counted  # type: ignore[method-assign,assignment]
        found = self.documents.load([Wanted(UUID(int=n), "thing", id) for n, id in enumerate(ids)])
        assert len(reads) <= 1
        assert [d.failure for d in found.values()] == [None] * len(ids)
        return [found[UUID(int=n)].body is not None for n in range(len(ids))]

    def walked(self, limit: int) -> list[str]:
        """All pages; more of them than there are ids would never end."""
        ids: list[str] = []
        for _ in range(len(self.case.ids) + 1):
            page = self.truth.keys("thing", ids[-1] if ids else None, limit)
            if not page:
                return ids
            ids += page
        raise AssertionError(f"{self.case.type} has no end: {ids}")


@pytest.fixture(scope="module")
def shared(postgres_url: str, migrated_template: str) -> Iterator[EventTable]:
    """One database for all types. Its sessions write dates in a way of their own."""
    with fresh_queue(postgres_url, migrated_template) as queue:
        name = queue.connection.info.dbname
        queue.connection.execute(f"alter database {name} set datestyle = 'German'".encode())
        queue.connection.execute(TYPES.encode())
        yield queue


def keys_of(truth: PostgresTruth, ranges: Sequence[tuple[str | None, str | None]], page: int = 2) -> list[str]:
    """Every key of every range, as a walk over them finds it."""
    found: list[str] = []
    for low, high in ranges:
        after = low
        while ids := truth.keys("thing", after, page, high):
            found += ids
            after = ids[-1]
    return found


def check_parts(queue: EventTable, ids: Ids) -> None:
    """Ranges between any keys of the type have every key once."""
    bounds = KeyBounds(queue.pool(), ids.view).keys("thing", len(ids.case.ids), in_view=True)
    assert list(bounds) == list(ids.case.ids), "in the order of the type"
    for parts in range(1, len(bounds) + 2):
        assert keys_of(ids.truth, cut(bounds, parts)) == list(ids.case.ids)


def check(queue: EventTable, case: Case, name: str) -> None:
    ids = Ids(queue, case, name)
    check_parts(queue, ids)
    others = tuple(id for id in case.others if "\x00" not in id)
    assert ids.looked_up(case.ids + others) == [True] * len(case.ids) + [False] * len(others)
    for limit in (1, 2, 100):
        assert ids.walked(limit) == list(case.ids)
    keys = [Key("thing", id) for id in case.ids + case.others]
    assert ids.truth.present(keys) == set(keys[: len(case.ids)])
    assert [truth.text is not None for truth in ids.truth.load(keys)] == [id in case.ids for _, id in keys]


@pytest.mark.parametrize("case", CASES, ids=[case.type for case in CASES])
def test_an_id_finds_the_row_of_its_own_text_and_pages_follow_the_types_order(shared: EventTable, case: Case) -> None:
    check(shared, case, f"t{CASES.index(case)}")


@pytest.fixture(scope="module")
def contrib(postgres_url: str, migrated_template: str) -> Iterator[EventTable]:
    """A server with citext and ICU: the one in use, or Debian's."""
    with ExitStack() as stack:
        queue = stack.enter_context(fresh_queue(postgres_url, migrated_template))
        if not _can(queue):
            if not DEBIANS_CITEXT.exists():
                pytest.skip("no PostgreSQL of this machine has citext and ICU")
            server = stack.enter_context(EmbeddedPostgres.temporary(settings=POSTGRES_SETTINGS, bin_dir=DEBIAN))
            url = stack.enter_context(fresh_database(server.url))
            migrate(url)
            queue = EventTable(url, stack.enter_context(psycopg.connect(url, autocommit=True)), stack)
            assert _can(queue)
        yield queue


def _can(queue: EventTable) -> bool:
    try:
        queue.connection.execute(CONTRIB.encode())
    except psycopg.errors.FeatureNotSupported:
        return False
    return True


@pytest.mark.parametrize("case", CONTRIB_CASES, ids=[case.type for case in CONTRIB_CASES])
def test_ids_that_are_equal_in_two_spellings_and_ids_in_the_order_of_a_language_are_walked_to_their_end(
    contrib: EventTable, case: Case
) -> None:
    check(contrib, case, f"c{CONTRIB_CASES.index(case)}")


@pytest.mark.parametrize(("type_name", "analysed"), [("extensions.citext", True), ("text collate by_language", False)])
def test_many_such_ids_are_cut_into_parts_that_have_each_once(
    contrib: EventTable, monkeypatch: pytest.MonkeyPatch, type_name: str, analysed: bool
) -> None:
    """Spellings that are equal for the type stand together: a bound between them must not take one twice, or none."""
    monkeypatch.setattr(key_bounds, "ONE_SAMPLE_ROWS", 100)
    name = f"many_{type_name.replace('.', '_').replace(' ', '_')}_{int(analysed)}"
    ids = Ids(contrib, Case(type_name, (), ()), name)
    contrib.connection.execute(
        f"insert into {name} select id from generate_series(1, 700) g,"
        " unnest(array['Key' || g, 'key' || g, 'KEY' || g, 'kéy' || g]) as id".encode()
    )
    if analysed:
        contrib.connection.execute(f"analyze {name}".encode())
        monkeypatch.setattr(KeyBounds, "_sample", lambda *_: pytest.fail("the keys were read"))
    whole = keys_of(ids.truth, [(None, None)], 500)
    ranges = cut(KeyBounds(contrib.pool(), ids.view).keys("thing", 40, in_view=True), 40)
    assert (len(whole), len(set(whole)), len(ranges) >= 30) == (2_800, 2_800, True)
    assert keys_of(ids.truth, ranges, 7) == whole


REFUSED = {
    "real": "real",
    "timestamptz": "timestamp with time zone",
    "interval": "interval",
    "jsonb": "jsonb",
    "bytea": "bytea",
    "boolean": "boolean",
    "inet": "inet",
    "a_pair": "a_pair",
    "a_moment": "a_moment",
}


def test_every_other_type_is_refused_by_name_with_its_remedy(queue: EventTable) -> None:
    queue.connection.execute("create type a_pair as (a int, b int); create domain a_moment as timestamptz")
    for place, (type_name, told) in enumerate(REFUSED.items()):
        view = f"v{place}"
        queue.connection.execute(
            f"create view {view} as select 'thing'::text as entity_type, null::{type_name} as entity_id,"
            " '{}'::json as document".encode()
        )
        documents = ViewDocuments(queue.pool(), view, batch_bytes=BATCH_BYTES)
        assert documents.exists()
        with pytest.raises(UnsupportedIds) as refused:
            documents.usable()
        assert f"{view}.entity_id is {told}" in str(refused.value)
        assert "id::text" in str(refused.value)
        assert refused.value.exit_code == 78
        with pytest.raises(DocumentsUnavailable, match="give it as text"):
            documents.load([Wanted(UUID(int=1), "thing", "1")])
        with pytest.raises(UnsupportedIds):
            PostgresTruth(queue.pool(), view).types()


@pytest.mark.parametrize(
    ("text", "type_name", "fits"),
    [
        ("4714-11-24 BC", "date", True),
        ("4714-11-23 BC", "date", False),
        ("5874897-12-31", "date", True),
        ("5874898-01-01", "date", False),
        ("1900-02-29", "date", False),
        ("0001-02-29 BC", "date", True),
        ("-32768", "smallint", True),
        ("-32769", "smallint", False),
        ("1" * 131072 + "." + "1" * 16383, "numeric", True),
        ("1" * 131073, "numeric", False),
        ("1." + "1" * 16384, "numeric", False),
    ],
)
def test_the_bounds_of_a_type_are_those_of_postgresql(
    shared: EventTable, text: str, type_name: str, fits: bool
) -> None:
    assert names_an_id(text, type_name) is fits
    try:
        taken = shared.value(f"select %s::text::{type_name} is not null", text)
    except psycopg.DataError:
        taken = False
    assert taken is fits or type_name == "numeric", "digits after the point are cut, not refused"
