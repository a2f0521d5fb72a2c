"""Owns what is said about the artefacts: the bill of materials, checksums, and a signed statement of where they come
from."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outbox.embedded.pins import (
    DEBEZIUM,
    ELASTICSEARCH_8,
    ELASTICSEARCH_9,
    JAVA_21,
    OPENSEARCH_2,
    OPENSEARCH_3,
    kafka_jars,
)
from tests.deployed.shell import ROOT, run
from tests.release.archives import digest

JAVA = (ELASTICSEARCH_8, ELASTICSEARCH_9, OPENSEARCH_2, OPENSEARCH_3, DEBEZIUM, *JAVA_21.values())
STATEMENT = "application/vnd.in-toto+json"


def bill(version: str, dist: Path) -> Path:
    """CycloneDX of `scripts/sbom`, with the jars and the Java that `outbox up` may fetch."""
    run(ROOT / "scripts" / "sbom")
    found = json.loads((ROOT / "build" / "sbom.json").read_text())
    found["metadata"]["component"]["version"] = version
    artifacts = {one.coordinates: one for download in (*JAVA, kafka_jars()) for one in download.artifacts}
    found["components"] += [
        {
            "type": "library",
            "bom-ref": f"maven-{one.coordinates}",
            "group": one.group,
            "name": one.artifact,
            "version": one.version,
            "purl": f"pkg:maven/{one.group}/{one.artifact}@{one.version}",
            "scope": "optional",
            "hashes": [{"alg": "SHA-256", "content": one.sha256}],
        }
        for one in artifacts.values()
    ]
    for each in found["components"]:  # where it came from on this machine is nobody's business
        each.pop("externalReferences", None)
    target = dist / f"outbox-projector-{version}.cdx.json"
    target.write_text(json.dumps(found, indent=1) + "\n")
    return target


def checksums(dist: Path) -> Path:
    """In the form of `sha256sum -c`."""
    target = dist / "SHA256SUMS"
    artefacts = sorted(path for path in dist.iterdir() if path != target)
    target.write_text("".join(f"{digest(path)}  {path.name}\n" for path in artefacts))
    return target


def statement(subjects: Mapping[str, str], commit: str, version: str) -> dict[str, Any]:
    """in-toto's, with the predicate of SLSA."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": value}} for name, value in sorted(subjects.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "scripts/release",
                "externalParameters": {"version": version},
                "resolvedDependencies": [{"name": "commit", "digest": {"gitCommit": commit}}],
            },
            "runDetails": {"builder": {"id": "scripts/release"}},
        },
    }


def encoded(payload: bytes) -> bytes:
    """What DSSE signs: the type and the payload, each with its length."""
    kind = STATEMENT.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(said: Mapping[str, Any], scratch: Path, dist: Path, version: str) -> tuple[Path, Path]:
    """An envelope of DSSE, and the public key of a pair made for it: a rehearsal's key proves only that it works."""
    private, public = scratch / "key.pem", dist / "rehearsal-key.pub"
    run("openssl", "genpkey", "-algorithm", "ed25519", "-out", private)
    run("openssl", "pkey", "-in", private, "-pubout", "-out", public)
    payload = json.dumps(said, sort_keys=True).encode()
    (scratch / "signed").write_bytes(encoded(payload))
    run("openssl", "pkeyutl", "-sign", "-rawin", "-inkey", private, "-in", scratch / "signed", "-out", scratch / "sig")
    signature = base64.b64encode((scratch / "sig").read_bytes()).decode()
    target = dist / f"outbox-projector-{version}.intoto.json"
    envelope = {
        "payloadType": STATEMENT,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": "rehearsal", "sig": signature}],
    }
    target.write_text(json.dumps(envelope) + "\n")
    private.unlink()
    return target, public


def verify(envelope: Path, public: Path, scratch: Path, dist: Path) -> int:
    """How many artefacts the statement names; an error if the signature or one of them is not as it says."""
    found = json.loads(envelope.read_text())
    payload = base64.b64decode(found["payload"])
    (scratch / "read").write_bytes(encoded(payload))
    (scratch / "sig-read").write_bytes(base64.b64decode(found["signatures"][0]["sig"]))
    checked = (
        "-verify",
        "-rawin",
        "-pubin",
        "-inkey",
        public,
        "-in",
        scratch / "read",
        "-sigfile",
        scratch / "sig-read",
    )
    run("openssl", "pkeyutl", *checked)
    subjects = json.loads(payload)["subject"]
    for subject in subjects:
        if digest(dist / subject["name"]) != subject["digest"]["sha256"]:
            raise ValueError(f"{subject['name']} is not what was signed")
    return len(subjects)
