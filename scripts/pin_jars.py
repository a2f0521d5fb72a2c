"""Pins the jars of the embedded Kafka anew: what Maven resolves for ROOTS, with digests, into outbox/embedded/jars/.

python scripts/pin_jars.py    after a change of a version here; it needs Maven and downloads 60 MB
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

from outbox.embedded.jar_list import Jar, JarList

VERSION = "4.1.0"
ROOTS = [
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.apache.kafka", "connect-basic-auth-extension", VERSION),
    # Kafka's jars bring no way to write a log. This one is of the version that they ask of log4j.
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
]
LISTS = Path(__file__).resolve().parents[1] / "outbox" / "embedded" / "jars"
HEADER = f"# Kafka {VERSION} with Kafka Connect, written by scripts/pin_jars.py: SHA256 BYTES GROUP:ARTIFACT:VERSION\n"
# group:artifact:jar:version:scope, perhaps followed by a module's name.
RESOLVED = re.compile(r"^\s+([\w.-]+):([\w.-]+):jar:([\w.-]+):(?:compile|runtime)\b", re.MULTILINE)


def resolved(folder: Path) -> list[Jar]:
    project, listed, repository = folder / "pom.xml", folder / "list.txt", folder / "repository"
    roots = JarList(
        "", "pins", tuple(Jar(group, artifact, version, "", 0) for group, artifact, version in ROOTS)
    ).as_project()
    project.write_text(re.sub(r"<exclusions>.*</exclusions>", "", roots))
    command = ["mvn", "-B", "-q", "-C", "-f", str(project), "dependency:list", "-DincludeScope=runtime"]
    subprocess.run([*command, f"-DoutputFile={listed}", f"-Dmaven.repo.local={repository}"], check=True)
    found = sorted(set(RESOLVED.findall(listed.read_text(encoding="utf-8"))))
    return [_pinned(Jar(group, artifact, version, "", 0), repository) for group, artifact, version in found]


def _pinned(jar: Jar, repository: Path) -> Jar:
    whole = jar.file_in(repository).read_bytes()
    return Jar(jar.group, jar.artifact, jar.version, hashlib.sha256(whole).hexdigest(), len(whole))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        jars = resolved(Path(folder))
    lines = [f"{jar.sha256} {jar.size} {jar.coordinates}\n" for jar in jars]
    LISTS.mkdir(exist_ok=True)
    (LISTS / f"kafka-{VERSION}.txt").write_text(HEADER + "".join(lines), encoding="utf-8")
    print(f"{len(jars)} jars, {sum(jar.size for jar in jars) // 1_000_000} MB")


if __name__ == "__main__":
    main()
