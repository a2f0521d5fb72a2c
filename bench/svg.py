"""Small SVG pictures of results for light and dark pages, without scripts. Reads no file."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

WIDTH, LABEL, ROW, TOP = 900, 300, 26, 40
LEFT, RIGHT, PLOT = 60, 190, 300  # of a curve's plot: its margins and its height
COLOURS = ("#2f6fab", "#c26a1b", "#2e7d4f", "#8a4fa3", "#b5391f", "#5b6472")
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2430 } .quiet { fill: #5b6472; font-size: 12px }
.bar { fill: #2f6fab } .other { fill: #9aa5b1 }
.mark { stroke: #b5391f; stroke-width: 2 } .goal { stroke: #2e7d4f; stroke-width: 2 }
.flame { stroke: #fff; stroke-width: 1 } .curve { fill: none; stroke-width: 2 } .grid { stroke: #9aa5b1; opacity: 0.4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ee } .quiet { fill: #a3adba } .bar { fill: #6ea8dc } .other { fill: #5b6673 }
  .flame { stroke: #111 }
  .mark { stroke: #ff8a70 } .goal { stroke: #7fce9f } .flame + text { fill: #111 }
}
</style>"""


def bars(
    title: str, rows: Sequence[tuple[str, float, str]], *, ours: str = "", marks: Mapping[str, float] | None = None
) -> str:
    """Horizontal bars: (name, value, value as text). `marks`: `first bar` and `goal` as lines across."""
    most = max([value for _, value, _ in rows] + list((marks or {}).values()) + [1e-9]) * 1.15
    room = WIDTH - LABEL - 20
    height = TOP + ROW * len(rows) + (24 if marks else 8)
    parts = [_head(height, title)]
    for number, (name, value, text) in enumerate(rows):
        y = TOP + number * ROW
        kind = "bar" if not ours or ours in name else "other"
        wide = max(1.0, value / most * room)
        parts.append(f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="{kind}" x="{LABEL}" y="{y + 3}" width="{wide:.1f}" height="{ROW - 8}" rx="2"/>')
        parts.append(f'<text class="quiet" x="{LABEL + wide + 6:.1f}" y="{y + 15}">{escape(text)}</text>')
    for mark, value in (marks or {}).items():
        x, kind = LABEL + value / most * room, "goal" if mark == "goal" else "mark"
        parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 4}" y2="{height - 20}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{mark} {value:g}</text>')
    return "\n".join([*parts, "</svg>\n"])


def curves(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, across: str) -> str:
    """Both axes logarithmic, each line with its name at its end. A figure that is not above 0 has no place."""
    points = [point for line in lines.values() for point in line if min(point) > 0]
    if not points:
        return "\n".join([_head(TOP, title), "</svg>\n"])
    left, low = (floor(log10(min(values))) for values in zip(*points, strict=True))
    right, high = (ceil(log10(max(values))) for values in zip(*points, strict=True))
    wide, height = (WIDTH - LEFT - RIGHT) / max(1, right - left), PLOT / max(1, high - low)

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (log10(x) - left) * wide, TOP + PLOT - (log10(y) - low) * height

    parts = [_head(TOP + PLOT + 44, title)]
    for power in range(left, right + 1):
        x, bottom = place(10.0**power, 10.0**low)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom:.1f}"/>')
        parts.append(
            f'<text class="quiet" x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{10**power:,g}</text>'
        )
    for power in range(low, high + 1):
        x, y = place(10.0**left, 10.0**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="quiet" x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:,g}</text>')
    parts.append(f'<text class="quiet" x="{LEFT}" y="{TOP + PLOT + 36}">{escape(across)}</text>')
    for (name, line), colour in zip(lines.items(), COLOURS * len(lines), strict=False):
        places = [place(*point) for point in sorted(line) if min(point) > 0]
        if places:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            x, y = places[-1]
            parts.append(f'<polyline class="curve" stroke="{colour}" points="{path}"/>')
            parts.append(f'<text x="{x + 6:.1f}" y="{y + 4:.1f}" style="fill:{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def icicle(title: str, tree: Mapping[str, Any]) -> str:
    """A profile from the outermost (top) to the innermost call; the width is the share of the samples."""
    boxes = list(_boxes(tree, 0.0, 0))
    deepest = max(depth for _, _, depth, _ in boxes)
    parts = [_head(TOP + 20 * (deepest + 1) + 8, title)]
    for left, wide, depth, name in boxes:
        x, y, w = 10 + left * (WIDTH - 20), TOP + depth * 20, wide * (WIDTH - 20)
        colour = f"hsl({30 + sum(map(ord, name)) % 40} 70% 72%)"
        parts.append(f'<rect class="flame" x="{x:.1f}" y="{y}" width="{w:.1f}" height="19" fill="{colour}">')
        parts.append(f"<title>{escape(name)}: {wide:.1%}</title></rect>")
        if letters := int(w / 7):
            shown = name if len(name) <= letters else f"{name[: letters - 1]}…" if letters > 3 else ""
            parts.append(f'<text x="{x + 3:.1f}" y="{y + 14}" style="font-size:11px">{escape(shown)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _boxes(node: Mapping[str, Any], left: float, depth: int) -> Iterator[tuple[float, float, int, str]]:
    yield left, node["share"], depth, node["name"]
    for child in sorted(node["children"], key=lambda each: -each["share"]):
        yield from _boxes(child, left, depth + 1)
        left += child["share"]


def _head(height: int, title: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
    return f'{head}\n{STYLE}\n<text x="10" y="22" style="font-weight:600">{escape(title)}</text>'
