"""Small SVG pictures of results for light and dark pages, without scripts. Reads no file."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

WIDTH, TOP = 900, 40
LEFT, RIGHT, PLOT = 60, 190, 300  # of a curve's plot: its margins and its height
COLOURS = ("#2f6fab", "#c26a1b", "#2e7d4f", "#8a4fa3", "#b5391f", "#5b6472")
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2430 } .quiet { fill: #5b6472; font-size: 12px }
.flame { stroke: #fff; stroke-width: 1 } .curve { fill: none; stroke-width: 2 } .grid { stroke: #9aa5b1; opacity: 0.4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ee } .quiet { fill: #a3adba }
  .flame { stroke: #111 }
  .flame + text { fill: #111 }
}
</style>"""


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
