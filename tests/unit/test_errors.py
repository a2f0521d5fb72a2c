"""The errors: their exit codes, and messages with a remedy."""

from __future__ import annotations

import pytest

from outbox import errors
from outbox.errors import OutboxError

EXIT_CODES = {
    "OutboxError": 1,
    "NotFound": 1,
    "Conflict": 1,
    "UsageError": 2,
    "NoTransaction": 2,
    "WrongConnection": 2,
    "WrongEntity": 2,
    "WrongArgument": 2,
    "PartlyDone": 3,
    "DependencyDown": 75,
    "DatabaseDown": 75,
    "NothingSent": 75,
    "DatabaseAway": 75,
    "LockHeld": 75,
    "DocumentsUnavailable": 75,
    "ElasticsearchDown": 75,
    "NotStored": 75,
    "StreamDown": 75,
    "ConfigurationError": 78,
    "KafkaClientMissing": 78,
    "SchemaMismatch": 78,
    "NotPermitted": 78,
    "PooledAddress": 78,
    "NoEncoding": 78,
    "WrongProduct": 78,
    "WorkerIdTaken": 78,
    "OtherTarget": 78,
    "CannotListen": 78,
}


def family() -> dict[str, type[OutboxError]]:
    members = [member for member in vars(errors).values() if isinstance(member, type)]
    return {member.__name__: member for member in members if issubclass(member, OutboxError)}


def test_every_error_has_the_exit_code_of_the_contract() -> None:
    assert {name: member.exit_code for name, member in family().items()} == EXIT_CODES


@pytest.mark.parametrize("name", sorted(EXIT_CODES))
def test_the_docstring_of_an_error_says_what_happened_and_what_to_do(name: str) -> None:
    message = " ".join((family()[name].__doc__ or "").split())
    assert message.endswith(".")
    assert len(message.split(". ")) >= 2, "a sentence for the cause, one for the remedy"
