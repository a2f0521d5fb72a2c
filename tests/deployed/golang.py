"""Owns programs that are built from their source: Kubernetes and helm have no Debian package, the Go proxy has them."""

import os
import re
import shutil
from pathlib import Path

from tests.deployed.shell import MissingSoftware, run, say

KUBERNETES = "v1.36.3"
STAGING = "v0.36.3"
HELM = "v3.22.0"
KEDA = "v2.21.0"
OPERATOR = "v0.85.0"
BUILD_SECONDS = 7200


def require_go() -> None:
    if not shutil.which("go"):
        raise MissingSoftware("go: Kubernetes and helm are built from source; tried the PATH")


def kubernetes(folder: Path, *programs: str) -> Path:
    """The folder with these programs, built once. All four take some twenty minutes of CPU."""
    made = folder / "k8sbin"
    missing = [name for name in programs if not (made / name).exists()]
    if missing:
        source = _source(folder)
        say(f"   building {', '.join(missing)} of Kubernetes {KUBERNETES} from source, with one core at low priority")
        major, minor = re.findall(r"\d+", KUBERNETES)[:2]
        version = "k8s.io/component-base/version"
        told = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
        flags = " ".join(["-s -w", *(f"-X {version}.{name}={value}" for name, value in told.items())])
        commands = [f"./cmd/{name}" for name in missing]
        _go(folder, "build", "-trimpath", "-ldflags", flags, "-o", f"{made}/", *commands, cwd=source)
    return made


def _source(folder: Path) -> Path:
    """The module's archive has no staging folder: the published modules take its place."""
    source = folder / "k8s"
    if not (source / ".made").exists():
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(module(folder, "k8s.io/kubernetes", KUBERNETES), source)
        run("chmod", "-R", "u+w", source)
        for name in ("vendor", "go.work", "go.work.sum"):
            place = source / name
            shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        needs = source / "go.mod"
        local = re.compile(r"^(\s+k8s\.io/[a-z-]+) => \./staging/src/(k8s\.io/[a-z-]+)$", re.MULTILINE)
        needs.write_text(local.sub(rf"\1 => \2 {STAGING}", needs.read_text()))
        (source / ".made").touch()
    return source


def helm(folder: Path) -> Path:
    program = folder / "bin" / "helm"
    if not program.exists():
        say(f"   building helm {HELM} from source")
        source = folder / "helm"
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(module(folder, "helm.sh/helm/v3", HELM), source)
        run("chmod", "-R", "u+w", source)
        _go(
            folder,
            "build",
            "-trimpath",
            "-ldflags",
            f"-s -w -X helm.sh/helm/v3/internal/version.version={HELM}",
            "-o",
            str(program),
            "./cmd/helm",
            cwd=source,
        )
    return program


def module(folder: Path, path: str, version: str) -> Path:
    """Where the module's files are; fetched by the proxy that this machine's Go is configured with."""
    require_go()
    (folder / "go").mkdir(parents=True, exist_ok=True)
    _go(folder, "mod", "download", f"{path}@{version}", cwd=folder / "go")
    return folder / "go" / "pkg" / "mod" / f"{path}@{version}"


def _go(folder: Path, *words: str, cwd: Path) -> None:
    env = {**os.environ, "GOPATH": str(folder / "go"), "GOCACHE": str(folder / "gocache"), "GOWORK": "off"}
    env |= {"CGO_ENABLED": "0", "GOMAXPROCS": "1", "GOFLAGS": "-mod=mod -p=1"}
    run("nice", "-n", "19", "go", *words, env=env, cwd=cwd, limit=BUILD_SECONDS)
