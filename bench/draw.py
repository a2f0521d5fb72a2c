"""`python -m bench.draw`: the newest full result of each benchmark into docs/performance/, and its bars into the pages.

People write the words of docs/performance.md and docs/scaling.md; only what stands between their marks is replaced.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from bench.__main__ import MORE, NAMES
from bench.plan import KEPT, Found
from bench.plan import results as full_results
from bench.result import RESULTS
from bench.svg import curves, icicle

PAGES = (Path("docs/performance.md"), Path("docs/scaling.md"))
MARK = re.compile(r"<!-- figures: (\w+) -->.*?<!-- end of figures -->", re.DOTALL)
NOT_YET = "*No full run yet.*"


def collect(results: Path = RESULTS, kept: Path = KEPT) -> dict[str, Found]:
    """Name -> its newest full result."""
    kept.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in (*NAMES, *MORE):
        target = kept / f"{name}.json"
        newest = max(full_results(name, (results,)), key=_at, default=None)
        if newest and (not target.exists() or _at(newest) > _at(json.loads(target.read_text()))):
            target.write_text(json.dumps(newest, indent=2) + "\n")
        if target.exists():
            found[name] = json.loads(target.read_text())
    return found


def _at(result: Found) -> str:
    return str(result["at"])


def redraw(page: str, found: dict[str, Found]) -> str:
    def made(mark: re.Match[str]) -> str:
        return f"<!-- figures: {mark[1]} -->\n{_figures(mark[1], found)}\n<!-- end of figures -->"

    return MARK.sub(made, page)


def _figures(mark: str, found: dict[str, Found]) -> str:
    """`summary`, `summary_of_NAME` (the bars of one benchmark), `picture_of_NAME` or `NAME` (all that was measured)."""
    if mark == "summary":
        return summary(found)
    name = mark.removeprefix("summary_of_").removeprefix("picture_of_")
    if name not in found:
        return NOT_YET
    if mark.startswith("picture_of_"):
        return f"![{name}](performance/{name}.svg)"
    return section(found[name]) if name == mark else summary({name: found[name]})


def summary(found: dict[str, Found]) -> str:
    """Every bar of every benchmark in one table."""
    rows = [
        f"| [`{name}`](performance/{name}.json) | {bar['name']} | {result.get('documents', '')} | {_found(bar)}"
        f" | {_limit(bar, 'first')} | {_limit(bar, 'goal')} | {bar['verdict']} |"
        for name, result in found.items()
        for bar in result["bars"]
    ]
    if not rows:
        return NOT_YET
    head = ("benchmark", "what", "documents", "found", "first bar", "goal", "")
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows])


def _found(bar: Found) -> str:
    """With its spread, where it is the median of rounds."""
    noise = f" ± {bar['spread']:.0%} of {bar['rounds']}" if bar.get("rounds", 0) > 1 else ""
    return f"{number(bar['value'])}{noise}"


def _limit(bar: Found, which: str) -> str:
    return f"{'at most' if bar['most'] else 'at least'} {bar[which]:g}"


def section(result: Found) -> str:
    rows = [f"| {s['name']} | {number(s['median'])} | {s['unit']} | {_spread(s)} |" for s in result["series"]]
    about = f"{result['at'][:10]}, commit {result['commit']}; {_settings(result['settings'])}; {_versions(result)}."
    notes = "".join(f"\n- {note}" for note in result["notes"])
    table = "\n".join(["| | median | | spread |", "|---|---|---|---|", *rows])
    return f"{table}\n\n{about}{notes}"


def _spread(series: Found) -> str:
    return f"± {series['spread']:.0%} of {len(series['values'])}" if len(series["values"]) > 1 else ""


def _settings(settings: Found) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items() if name not in HIDDEN)


def _versions(result: Found) -> str:
    return ", ".join(f"{name} {value}" for name, value in result["versions"].items())


HIDDEN = ("tree", "cases")


def number(value: float) -> str:
    """Three digits: 0.495 is not yet 0.50."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


_AT_RATE = re.compile(r"(?P<way>\w+), (?P<rate>[\d,]+) per second: (?P<which>p50|p99|p99\.9)$")


def _late(result: Found) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for series in result["series"]:
        if found := _AT_RATE.match(series["name"]):
            point = float(found["rate"].replace(",", "")), series["median"]
            lines.setdefault(f"{found['way']}, {found['which']}", []).append(point)
    return curves("latency, ms, by rate", lines, across="events per second")


def _profile(result: Found) -> str:
    return icicle("Where the daemon's interpreter is while it drains", result["settings"]["tree"])


PICTURES: dict[str, Callable[[Found], str]] = {"profile": _profile, "latency_at": _late}


def main() -> None:
    found = collect()
    for name, result in found.items():
        if name in PICTURES:
            (KEPT / f"{name}.svg").write_text(PICTURES[name](result))
    for page in PAGES:
        page.write_text(redraw(page.read_text(), found))
    print(f"drawn: {', '.join(found) or 'nothing: there is no full run in build/bench'}")


if __name__ == "__main__":
    main()
