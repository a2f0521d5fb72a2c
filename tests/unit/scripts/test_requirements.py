"""The pins: everything that pyproject.toml asks for, by hash, from no particular place."""

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
EXTRAS = PROJECT["optional-dependencies"]
# What scripts/run installs.
PUBLISHED = [*PROJECT["dependencies"], *EXTRAS["embedded"], *EXTRAS["console"], *EXTRAS["kafka"]]
WANTED = {
    "run": [*PUBLISHED, *GROUPS["labs"]],
    "spark": [*PROJECT["dependencies"], *EXTRAS["embedded"], *EXTRAS["spark"], *GROUPS["labs"]],
    "dev": [*PUBLISHED, *EXTRAS["aws"], *GROUPS["labs"], *(line for line in GROUPS["dev"] if isinstance(line, str))],
}


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", text, re.MULTILINE))


@pytest.mark.parametrize("name", ["run", "dev", "spark"])
def test_every_requirement_is_pinned_to_a_version_that_fits(name: str) -> None:
    pinned = pins(name)
    for wanted in map(Requirement, WANTED[name]):
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), wanted.name


@pytest.mark.parametrize("name", ["run", "dev", "spark", "supply", "fuzz", "site"])
def test_every_pin_carries_hashes(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.*")), ids=lambda file: file.name)
def test_no_index_and_no_download_address_is_named(file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted-host", text)


def test_every_dependency_of_the_published_package_is_used() -> None:
    """By an import, or by a package that imports it: forms of the console need python-multipart."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "outbox").rglob("*.py"))
    brought = {
        canonicalize_name(name): module for module, names in packages_distributions().items() for name in names
    } | {"python-multipart": "fastapi"}
    modules = {
        wanted.name: brought[canonicalize_name(wanted.name)]
        for wanted in map(Requirement, [*PUBLISHED, *EXTRAS["aws"]])
    }
    assert {name for name, module in modules.items() if not re.search(rf"\b{module}\b", text)} == set()


def test_what_runs_is_what_is_tested() -> None:
    tested = pins("dev")
    assert {name: version for name, version in pins("run").items() if tested[name] != version} == {}
