"""Draws the graph of a pipeline as one self-contained SVG file. Pure and deterministic.

Kinds of jobs differ by border and by words, not by colour alone; every box has a title for screen readers. Invariant:
the XML is well-formed for all job names; size and time are linear in nodes plus edges."""

import math
from collections.abc import Iterator, Mapping
from xml.sax.saxutils import escape, quoteattr

from remuda.cli.render.graph import By, Graph, Node
from remuda.lib.dataclass import dataclass
from remuda.localrun.render.columns import cut, width
from remuda.localrun.render.words import plural
from remuda.pipeline.errors import printable

SHORT_COLUMN = 24
"""Columns with at most this many jobs are never split."""
LONGEST_LABEL = 36

_CHARACTER = 7.8
_LINE = 16
_PADDING = 12
_ROW_GAP = 12
_COLUMN_GAP = 64
_SUBCOLUMN_GAP = 24
_MARGIN = 20
_HEAD = 34
_LONG = 500

_STYLE = """
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328; }
.head { font-weight: bold; }
.note { font-size: 11px; fill: #57606a; }
.band { fill: #f6f8fa; }
.box { fill: #ffffff; stroke: #0b63b5; stroke-width: 1.5; }
.manual .box { stroke: #9a5b00; stroke-dasharray: 7 3; }
.delayed .box { stroke: #9a5b00; stroke-dasharray: 2 3; }
.on_failure .box { stroke: #b3261e; stroke-dasharray: 9 3 2 3; }
.always .box, .various .box { stroke: #57606a; }
.trigger .box { stroke: #7b3fb5; stroke-width: 4; }
.edge { fill: none; stroke: #6e7781; stroke-width: 1.2; marker-end: url(#remuda-arrow); }
#remuda-arrow path { fill: #6e7781; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .note { fill: #9da7b1; } .band { fill: #161b22; } .box { fill: #0d1117; }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    node: Node
    note: str
    column: int
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Band:
    title: str
    x: float
    width: float


def svg(graph: Graph, *, by: By, title: str) -> str:
    if not graph.nodes:
        return _empty(title, graph.skipped or "no jobs")
    boxes, bands = _place(graph, by)
    right = max(band.x + band.width for band in bands) + _MARGIN
    bottom = max(box.y + box.height for box in boxes.values()) + _MARGIN
    jobs = sum(node.parts for node in graph.nodes)
    about = f"{plural(jobs, 'job')} in {plural(len(bands), 'column')}, {plural(len(graph.edges), 'edge')}"
    parts = [*_head(right, bottom, title, about), "<g>"]
    for band in bands:
        x, middle = _n(band.x), _n(band.x + band.width / 2)
        size = f'width="{_n(band.width)}" height="{_n(bottom - _MARGIN)}"'
        parts.append(f'<rect class="band" x="{x}" y="{_MARGIN // 2}" {size} rx="8"/>')
        position = f'x="{middle}" y="{_MARGIN + 10}" text-anchor="middle"'
        parts.append(f'<text class="head" {position}>{escape(band.title)}</text>')
    parts += ("</g>", "<g>", *_edges(graph, boxes), "</g>", "<g>")
    needs = graph.needs()
    for box in boxes.values():
        parts += _draw_box(box, needs.get(box.node.name, ()))
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _place(graph: Graph, by: By) -> tuple[dict[str, _Box], list[_Band]]:
    """Compute boxes by node name, and a background band per column. A long one is split side by side on its band."""
    columns = graph.columns(by)
    rows = max(SHORT_COLUMN, math.ceil(math.sqrt(max(len(column.nodes) for column in columns)) * 1.5))
    height = _LINE + _PADDING + (_LINE if any(_note(node, by) for node in graph.nodes) else 0)
    boxes: dict[str, _Box] = {}
    bands: list[_Band] = []
    needs = graph.needs()
    x = float(_MARGIN)
    for number, column in enumerate(columns):
        start = x
        nodes = column.nodes if by == "stage" else _near_needs(column.nodes, needs, boxes)
        for first in range(0, len(nodes), rows):
            part = nodes[first : first + rows]
            texts = [text for node in part for text in (_label(node), _note(node, by))]
            wide = max(90.0, max(map(width, texts)) * _CHARACTER + 2 * _PADDING)
            for row, node in enumerate(part):
                y = _MARGIN + _HEAD + row * (height + _ROW_GAP)
                place = {"x": x + _PADDING, "y": y, "width": wide, "height": height}
                boxes[node.name] = _Box(node=node, note=_note(node, by), column=number, **place)
            x += wide + _SUBCOLUMN_GAP
        heading = cut(column.title if by == "stage" else f"level {column.title}", LONGEST_LABEL)
        wide = max(x - start, width(heading) * _CHARACTER + 2 * _PADDING)
        bands.append(_Band(title=heading, x=start, width=wide))
        x = start + wide + _COLUMN_GAP
    return boxes, bands


def _near_needs(
    nodes: tuple[Node, ...], needs: Mapping[str, tuple[str, ...]], placed: Mapping[str, _Box]
) -> tuple[Node, ...]:
    """Sort nodes by the mean vertical position of the boxes that they need, so that fewer curves cross."""

    def height(node: Node) -> float:
        sources = [placed[name].y for name in needs.get(node.name, ()) if name in placed]
        return sum(sources) / len(sources) if sources else math.inf

    return tuple(sorted(nodes, key=height))


def _edges(graph: Graph, boxes: Mapping[str, _Box]) -> Iterator[str]:
    for edge in graph.edges:
        a, b = boxes[edge.source], boxes[edge.target]
        x1, y1, x2, y2 = a.x + a.width, a.middle, b.x - 6, b.middle
        if a.column < b.column:
            bend = max((x2 - x1) / 2, 20.0)
            curve = f"C{_n(x1 + bend)} {_n(y1)} {_n(x2 - bend)} {_n(y2)} {_n(x2)} {_n(y2)}"
        else:
            # Both in one column: around the right side.
            x2 = b.x + b.width + 6
            bend = max(x1, x2) + 30
            curve = f"C{_n(bend)} {_n(y1)} {_n(bend)} {_n(y2)} {_n(x2)} {_n(y2)}"
        yield f'<path class="edge" d="M{_n(x1)} {_n(y1)}{curve}"/>'


def _draw_box(box: _Box, needs: tuple[str, ...]) -> Iterator[str]:
    node = box.node
    kind = "trigger" if node.is_trigger else node.when
    words = [node.label, f"stage {printable(node.stage, _LONG)}", *node.notes]
    if needs:
        words.append("needs " + ", ".join(printable(name) for name in needs))
    elif node.waits == "nothing":
        words.append("starts at once")
    note = box.note
    x = _n(box.x + box.width / 2)
    y = box.y + box.height / 2 + (-4 if note else 4.5)
    yield f"<g class={quoteattr(kind)}><title>{escape('; '.join(words))}</title>"
    size = f'width="{_n(box.width)}" height="{_n(box.height)}"'
    yield f'<rect class="box" x="{_n(box.x)}" y="{_n(box.y)}" {size} rx="7"/>'
    yield f'<text x="{x}" y="{_n(y)}" text-anchor="middle">{escape(_label(node))}</text>'
    if note:
        yield f'<text class="note" x="{x}" y="{_n(y + _LINE)}" text-anchor="middle">{escape(note)}</text>'
    yield "</g>"


def _label(node: Node) -> str:
    return cut(node.label, LONGEST_LABEL)


def _note(node: Node, by: By) -> str:
    waits = ("after earlier stages",) if by == "needs" and node.waits == "stages" and node.level else ()
    return ", ".join((*node.notes, *waits))


def _head(right: float, bottom: float, title: str, about: str) -> Iterator[str]:
    size = f'width="{_n(right)}" height="{_n(bottom)}" viewBox="0 0 {_n(right)} {_n(bottom)}"'
    named = 'role="img" aria-labelledby="remuda-title remuda-about"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} {named}>'
    yield f'<title id="remuda-title">{escape(printable(title, _LONG))}</title>'
    yield f'<desc id="remuda-about">{escape(about)}</desc>'
    yield f"<style>{_STYLE}</style>"
    shape = 'viewBox="0 0 8 8" refX="2" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    yield f'<defs><marker id="remuda-arrow" {shape}><path d="M0 0L8 4L0 8z"/></marker></defs>'


def _empty(title: str, reason: str) -> str:
    text = printable(reason, _LONG)
    right = width(text) * _CHARACTER + 2 * _MARGIN
    element = f'<text x="{_MARGIN}" y="{_MARGIN + 10}">{escape(text)}</text>'
    return "\n".join([*_head(right, 2 * _MARGIN + _LINE, title, text), element, "</svg>", ""])


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
