"""Two workers of one database: whether each entity type has one index."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.policy.projection import Projects

TYPES = st.sampled_from("abc")
SOME = st.frozensets(TYPES, max_size=2)
INDEXES = st.sampled_from(["x", "y"])


@st.composite
def projects(draw: st.DrawFn) -> Projects:
    only = draw(SOME)
    never = frozenset() if only else draw(SOME)
    return Projects(draw(INDEXES), draw(st.dictionaries(TYPES, INDEXES)), only, never)


@given(projects(), projects())
def test_there_is_a_conflict_exactly_where_a_type_has_two_indexes(one: Projects, other: Projects) -> None:
    def split(entity_type: str) -> bool:
        pair = {one.target(entity_type), other.target(entity_type)} - {None}
        return len(pair) > 1

    found = any(split(each) for each in (*"abc", "named by nobody"))
    assert (one.conflict(other) is not None) == found == (other.conflict(one) is not None)
