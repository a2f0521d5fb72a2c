"""Bare machines: a closed checkout, an empty cache, a noexec /tmp, no Java but the wheel's. Real servers, a search."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outbox.embedded.archives import java_for_this_machine
from tests.fixtures.bare import bare_machine
from tests.fixtures.embedded import cannot_show
from tests.fixtures.processes import ROOT

pytestmark = pytest.mark.slow

# The servers as `outbox up` starts them. The archives were made again from those that are unpacked, and so have other
# digests; everything else is as on a machine that was installed a minute ago.
START = """
import json, sys
from dataclasses import replace
from pathlib import Path
digests = json.loads(sys.argv[1])
from outbox.embedded import archives, distribution, java, EmbeddedStack
java.SYSTEM_JAVAS = Path("/nowhere")
eight = distribution.RELEASES["8"]
distribution.RELEASES["8"] = replace(eight, archive=replace(eight.archive, sha256=digests["elasticsearch"]))
for machine, archive in archives.JAVA_21.items():
    archives.JAVA_21[machine] = replace(archive, sha256=digests["java"])
import psycopg
from elasticsearch import Elasticsearch
with EmbeddedStack(temporary=True) as stack:
    with psycopg.connect(stack.database_url) as connection:
        (one,) = connection.execute("select 1").fetchone()
    with Elasticsearch(stack.elastic_url) as client:
        client.index(index="bare", id="1", document={"title": "Coffee in the morning"}, refresh=True)
        found = client.search(index="bare", q="title:coffee")["hits"]["total"]["value"]
    print(json.dumps({"one": one, "found": found, "java": str(stack.elasticsearch._find()[1].home)}))
"""


# A /tmp from which nothing may be run, as on hardened machines, for this process and its children alone.
NOEXEC = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o noexec,mode=1777 tmpfs /tmp && exec "$@"', "sh"]


def with_noexec_tmp() -> list[str]:
    """Where the system lets us: as root, and outside of most containers."""
    try:
        subprocess.run([*NOEXEC, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get("CI"):
            pytest.fail(f"no /tmp without execution can be mounted here: {error}")
        return []
    return NOEXEC


def test_from_a_closed_folder_with_an_empty_cache_and_no_java_a_document_is_found(
    server_folder: Path,
) -> None:
    if java_for_this_machine() is None:
        cannot_show("there is no Java to fetch for this kind of machine: see outbox/embedded/archives.py")
    machine = bare_machine(server_folder / "closed", server_folder / "cache")
    argv = [*with_noexec_tmp(), sys.executable, "-c", START, json.dumps(machine.digests)]
    done = subprocess.run(argv, cwd=ROOT, env=machine.env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["one"], seen["found"]) == (1, 1)
    assert seen["java"] == str(server_folder / "cache" / "java-21")
    said = done.stderr.splitlines()
    assert "no Java of this machine fits: fetching one" in said
    assert said[-1] == "Elasticsearch 8.14.1 is ready"
    assert len(said) <= 12, "progress off a terminal is a handful of lines"
