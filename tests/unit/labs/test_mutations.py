"""The mutations still match the code: a refactoring must update them too."""

from pathlib import Path

import pytest

from labs.experiment import all_experiments
from labs.mutations import MUTATIONS, Mutation, mutate
from labs.worker import ROOT


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_still_finds_what_it_breaks(mutation: Mutation, tmp_path: Path) -> None:
    copy = mutate(ROOT, tmp_path, mutation)
    changed = {change.file for change in mutation.changes}
    assert all((copy / file).read_text() != (ROOT / file).read_text() for file in changed)
    assert mutation.lab in all_experiments()
    for file in changed:
        if file.endswith(".py"):
            compile((copy / file).read_text(), file, "exec")
