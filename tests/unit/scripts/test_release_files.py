"""What a release is made of: one version, a CI workflow that runs what everyone runs, hooks that fetch nothing."""

import importlib.resources
import json
import re
from typing import Any

import jsonschema
import pytest

from outbox import __version__
from tests.fixtures.deployment import ROOT, read_yaml

WORKFLOW: Any = read_yaml(ROOT / ".github" / "workflows" / "ci.yml")
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["test"]["steps"]


def test_the_workflow_fits_githubs_schema() -> None:
    # YAML 1.1 reads the key `on` as true; GitHub does not.
    workflow = {"on" if key is True else key: value for key, value in WORKFLOW.items()}
    schema = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "github-workflows.json"
    jsonschema.validate(workflow, json.loads(schema.read_text(encoding="utf-8")))


def test_the_workflow_runs_what_everyone_runs() -> None:
    assert STEPS[-1]["run"] == ".ci/run"
    assert "scripts/test" in (ROOT / ".ci" / "run").read_text()


def test_every_action_is_pinned_by_its_commit() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert [use for use in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", use)] == []


def test_the_version_is_written_once() -> None:
    """Outside of what tests compare with it: the images of the deployment files and the API's schema."""
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in pyproject
    assert __version__ not in pyproject
    assert json.loads((ROOT / "docs" / "openapi.json").read_text())["info"]["version"] == __version__


@pytest.mark.parametrize("name", ["SECURITY.md", "RELEASE.md", "CONTRIBUTING.md"])
def test_every_script_and_file_that_a_page_names_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    named = {*re.findall(r"\bscripts/[a-z_.]+\b", text), *re.findall(r"\]\(([^)#:]+)\)", text)}
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
