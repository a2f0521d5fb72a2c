"""The mutations still match the code: a refactoring must update them too."""

from pathlib import Path

import pytest

from labs import mutations
from labs.experiment import all_experiments
from labs.mutations import MUTATIONS, Mutation, mutate
from labs.worker import ROOT
from outbox.embedded.errors import EmbeddedServerFailed


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_still_finds_what_it_breaks(mutation: Mutation, tmp_path: Path) -> None:
    copy = mutate(ROOT, tmp_path, mutation)
    changed = {change.file for change in mutation.changes}
    assert all((copy / file).read_text() != (ROOT / file).read_text() for file in changed)
    assert mutation.lab in all_experiments()
    for file in changed:
        if file.endswith(".py"):
            compile((copy / file).read_text(), file, "exec")


def test_an_unknown_mutation_is_said_with_the_names_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutations.main(["no_brakes"]) == 2
    assert "no_heartbeat, no_token_check, no_version" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("trouble", "code"),
    [(EmbeddedServerFailed("it did not start"), 75), (KeyboardInterrupt(), 130)],
    ids=["dead", "^C"],
)
def test_servers_that_do_not_start_are_said_without_a_traceback(
    trouble: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(**_: object) -> None:
        raise trouble

    monkeypatch.setattr(mutations, "EmbeddedStack", broken)
    assert mutations.main([]) == code
    assert "labs: " in capsys.readouterr().err
