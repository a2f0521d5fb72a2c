"""The list of `attach --columns`, as it is typed and as a command shows it."""

from hypothesis import given
from hypothesis import strategies as st

from outbox.cli.attach import _names
from outbox.ports import Attachment, joined_columns

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_what_a_command_shows_can_be_typed(names: list[str]) -> None:
    assert _names(joined_columns(names)) == tuple(names)


def test_a_command_quotes_what_a_shell_would_take_apart() -> None:
    attached = Attachment("t", "the type", via="select 'a' where changed.id > 1", columns=("a b",), per_row=True)
    assert attached.command('public."T"') == (
        """outbox attach 'public."T"' --type 'the type' --via 'select '"'"'a'"'"' where changed.id > 1'"""
        """ --columns 'a b' --per-row"""
    )
