"""Pins the jars of the embedded Kafka anew: what Maven resolves for ROOTS, with digests, into outbox/embedded/jars/.

python scripts/pin_jars.py    after a change of a version, here or in outbox/embedded/pins.py; it needs Maven and
                              downloads 60 MB
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from outbox.embedded.pins import KAFKA_VERSION, Artifact, Download

ROOTS = [
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "connect-basic-auth-extension", KAFKA_VERSION),
    # Kafka's jars bring no way to write a log. This one is of the version that they ask of log4j.
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
]
LISTS = Path(__file__).resolve().parents[1] / "outbox" / "embedded" / "jars"
FORM = "SHA256 BYTES GROUP:ARTIFACT:VERSION"
HEADER = f"# Kafka {KAFKA_VERSION} with Kafka Connect, written by scripts/pin_jars.py: {FORM}\n"
# group:artifact:jar:version:scope, perhaps followed by a module's name.
RESOLVED = re.compile(r"^\s+([\w.-]+):([\w.-]+):jar:([\w.-]+):(?:compile|runtime)\b", re.MULTILINE)


def resolved(folder: Path) -> list[Artifact]:
    project, listed, repository = folder / "pom.xml", folder / "list.txt", folder / "repository"
    roots = Download("", "pins", tuple(Artifact(*root, "", 0) for root in ROOTS), 0).as_project()
    project.write_text(re.sub(r"<exclusions>.*</exclusions>", "", roots))
    command = ["mvn", "-B", "-q", "-C", "-f", str(project), "dependency:list", "-DincludeScope=runtime"]
    subprocess.run([*command, f"-DoutputFile={listed}", f"-Dmaven.repo.local={repository}"], check=True)
    found = sorted(set(RESOLVED.findall(listed.read_text(encoding="utf-8"))))
    return [_pinned(Artifact(group, name, version, "", 0), repository) for group, name, version in found]


def _pinned(jar: Artifact, repository: Path) -> Artifact:
    whole = jar.file_in(repository).read_bytes()
    return replace(jar, sha256=hashlib.sha256(whole).hexdigest(), size=len(whole))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        jars = resolved(Path(folder))
    lines = [f"{jar.sha256} {jar.size} {jar.coordinates}\n" for jar in jars]
    LISTS.mkdir(exist_ok=True)
    (LISTS / f"kafka-{KAFKA_VERSION}.txt").write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"{len(jars)} jars, {sum(jar.size for jar in jars) // 1_000_000} MB")


if __name__ == "__main__":
    main()
