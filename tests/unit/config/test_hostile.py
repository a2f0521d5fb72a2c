"""Hostile text in every variable: accepted unchanged, or rejected by its name in a short message."""

from __future__ import annotations

import pytest

from outbox.config import VARIABLES, load_settings
from outbox.config.load import known_names
from outbox.errors import ConfigurationError
from tests.fixtures.hostile import HOSTILE, TEXTS

LONGEST_REPORT = 2_000


ALIASES = {alias: variable.name for variable in VARIABLES.values() for alias in variable.aliases}


def refusal(environ: dict[str, str]) -> str | None:
    try:
        load_settings(environ, require_database=False).redacted()
    except ConfigurationError as refused:
        return refused.message
    return None


@pytest.mark.parametrize("what", TEXTS)
def test_every_setting_takes_hostile_text(what: str) -> None:
    for name in known_names():
        told = refusal({name: HOSTILE[what]})
        if told is not None:
            assert ALIASES.get(name, name.removesuffix("_FILE")) in told, (name, told)
            assert len(told) < LONGEST_REPORT, (name, len(told))
