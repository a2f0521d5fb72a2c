"""Interprets a report of pip-audit: exit 0 clean, 1 vulnerable, 3 unknown (not every package could be checked)."""

import json
import sys
from pathlib import Path
from typing import Any


def verdict(packages: list[dict[str, Any]]) -> tuple[int, str]:
    """A skipped package is not known to be clean: then the result is unknown."""
    bad = [f"{p['name']} {p['version']}: {v['id']}" for p in packages for v in p.get("vulns", ())]
    if bad:
        return 1, "known vulnerabilities:\n  " + "\n  ".join(sorted(set(bad)))
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped or not packages:
        return 3, f"{len(skipped)} of {len(packages)} packages could not be checked"
    return 0, f"{len(packages)} packages, no known vulnerability"


def main(path: Path) -> int:
    try:
        packages = json.loads(path.read_text(encoding="utf-8"))["dependencies"]
    except (OSError, ValueError, KeyError):
        packages = []
    code, message = verdict(packages)
    print(message)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
