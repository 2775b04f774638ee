"""Draws a graph of jobs as text: as a tree for people, or in the DOT language of Graphviz. Pure.

In DOT, jobs that wait for all earlier stages are connected to one extra node per stage (a gate), which is connected to
the earlier jobs: so the number of edges grows linearly."""

from itertools import pairwise

from remuda.cli.render.graph import By, Column, Graph, Node
from remuda.localrun.render.columns import align
from remuda.pipeline.errors import printable

SHOWN_NAMES = 5
"""How many needs are named in a line."""

_LONG = 500


def tree(graph: Graph, by: By) -> list[str]:
    """Return a heading per column (stage or level of needs), below it its nodes and what each of them waits for."""
    if graph.skipped is not None:
        return [f"no pipeline: {printable(graph.skipped, _LONG)}"]
    columns = graph.columns(by)
    needs = graph.needs()
    labels = {node.name: node.label for node in graph.nodes}
    rows: list[tuple[str, str, str]] = []
    titles: list[int] = []
    before = ""
    for column in columns:
        titles.append(len(rows))
        rows.append((column.title if by == "stage" else f"level {column.title}", "", ""))
        for index, node in enumerate(column.nodes):
            branch = "└─ " if index == len(column.nodes) - 1 else "├─ "
            waits = _waits(node, [labels[name] for name in needs.get(node.name, ())], before)
            rows.append((branch + node.label, ", ".join(node.notes), waits))
        before = column.title if by == "stage" else "the earlier stages"
    lines = align([row for index, row in enumerate(rows) if index not in titles])
    for index in titles:
        lines.insert(index, rows[index][0])
    return lines


def _waits(node: Node, names: list[str], before: str) -> str:
    if node.waits == "stages":
        return f"after {before}" if before and node.level else ""
    if not names:
        return "at once"
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"← {', '.join(names[:SHOWN_NAMES])}{more}"


def dot(graph: Graph) -> list[str]:
    columns = graph.columns("stage")
    ids = {node.name: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["digraph pipeline {", "  rankdir=LR;", '  node [shape=box, style="rounded", fontname="monospace"];']
    for index, column in enumerate(columns):
        lines += (f"  subgraph cluster_{index} {{", f"    label={_quote(column.title)};")
        if _has_gate(column, index):
            lines.append(f'    g{index} [shape=point, label="", tooltip={_quote(f"start of {column.title}")}];')
        for node in column.nodes:
            label = _quote("\n".join((node.label, *node.notes)))
            lines.append(f"    {ids[node.name]} [label={label}{_style(node)}];")
        lines.append("  }")
    gates = [index for index, column in enumerate(columns) if _has_gate(column, index)]
    for index in gates:
        lines += (f"  g{index} -> {ids[node.name]};" for node in columns[index].nodes if node.waits == "stages")
    for earlier, index in pairwise([0, *gates]):
        before = [node for column in columns[earlier:index] for node in column.nodes]
        lines += (f"  {ids[node.name]} -> g{index} [style=dotted];" for node in before)
        if earlier:
            lines.append(f"  g{earlier} -> g{index} [style=dotted];")
    lines += (f"  {ids[edge.source]} -> {ids[edge.target]};" for edge in graph.edges)
    return [*lines, "}"]


def _has_gate(column: Column, index: int) -> bool:
    return index > 0 and any(node.waits == "stages" for node in column.nodes)


def _style(node: Node) -> str:
    if node.is_trigger:
        return ", peripheries=2"
    return ', style="rounded,dashed"' if node.when in ("manual", "delayed") else ""


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
