"""Hooks of mkdocs: the pages of the repository that are not in docs/, their links, and GitHub's Markdown made Python's.

A link to a file of the repository that is not in the site becomes its text. A link to nothing fails the build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# In the site under its own path, except the README: docs/README.md is the first page.
_PAGES = """
ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md
examples/README.md examples/fastapi/README.md examples/django/README.md
deploy/README.md deploy/kubernetes/README.md deploy/prometheus/README.md grafana/README.md
labs/README.md labs/RECORD.md labs/GUIDE.md labs/CONCLUSIONS.md scripts/README.md sql/README.md
"""
REPORTS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "labs" / "reports").glob("*.md"))
OUTSIDE = {name: name for name in [*_PAGES.split(), *REPORTS]} | {"README.md": "about.md"}
# What runs of the labs left on this machine: the gallery and its reports.
RUNS, GALLERY = ROOT / "build" / "labs", "labs/reports/index.html"

FENCED = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
ITEM = re.compile(r"( *)(-|\d+\.) +")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    for name, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for report in [*RUNS.glob("index.html"), *RUNS.glob("*/report.html")]:
        uri = f"labs/reports/{report.relative_to(RUNS).as_posix()}"
        files.append(File.generated(config, uri, abs_src_path=str(report)))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    source = Path(page.file.abs_src_path or "")
    if page.file.src_uri == "labs/README.md" and files.get_file_from_path(GALLERY):
        markdown += "\n[Reports of the runs on this machine](../build/labs/index.html)\n"
    kept: list[str] = []

    def keep(block: re.Match[str]) -> str:
        """Code, set aside; what follows the language (`sh systemd`) is for our tests."""
        kept.append(re.sub(r"\A( *```\w*)[^\n]*", r"\1", block[0]))
        return f"{block[1]}@@{len(kept) - 1}@@"

    text = FENCED.sub(keep, markdown)
    text = LINK.sub(lambda link: relinked(link, source, page.file.src_uri), text)
    text = re.sub(r"^ *@@(\d+)@@$", lambda mark: f"\n{kept[int(mark[1])]}\n", text, flags=re.MULTILINE)
    return indented(text)


def relinked(link: re.Match[str], source: Path, uri: str) -> str:
    image, text, target = link.groups()
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in path:
        return link[0]
    there = (source.parent / path).resolve()
    found = uri_of(there / "README.md" if there.is_dir() else there)
    if found:
        return f"{image}[{text}]({os.path.relpath(found, Path(uri).parent)}{hash_sign}{anchor})"
    return text if there.exists() else link[0]


def uri_of(file: Path) -> str | None:
    """Where a file of the repository is in the site."""
    for folder, base in ((DOCS, ""), (RUNS, "labs/reports/")):
        if file.is_relative_to(folder) and file.exists():
            return base + file.relative_to(folder).as_posix()
    return OUTSIDE.get(file.relative_to(ROOT).as_posix()) if file.is_relative_to(ROOT) else None


def indented(text: str) -> str:
    """Python's Markdown wants what belongs to an item four spaces in, and a blank line before a list."""
    lines: list[str] = []
    width = 0
    fenced = False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        item = None if fenced else ITEM.match(line)
        if item and not item[1]:
            if not width and lines and lines[-1].strip():
                lines.append("")
            width = len(item[2]) + 1
            lines.append(line)
        elif line.strip() and not line.startswith(" " * max(width, 1)):
            width = 0
            lines.append(line)
        else:
            lines.append(" " * (4 - width) + line if width and line.strip() else line)
    return "\n".join(lines)
