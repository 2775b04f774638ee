"""Builds the graph of what each job of a pipeline waits for, and lays it out in columns, from left to right.

A job that waits by stage waits for all jobs before it. With several such jobs that would be an edge between every two,
so a gate stands between: all that it waits for lead to the gate, and the gate to them. Layout: longest path layering;
an edge over several columns passes through slots of its own, so that it crosses no card; a few sweeps order the slots
of each column by the mean place of their neighbours, and the order with the fewest crossings wins."""

from bisect import bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, pairwise

import msgspec

from remuda.wire.user_api import JobProgress

Key = str | int
"""A vertex: the name of a job, or the index of the stage whose gate it is."""
Graph = Mapping[Key, tuple[Key, ...]]
"""Each vertex with those that it waits for."""

CARD_WIDTH, CARD_HEIGHT, GATE_HEIGHT, PASS_HEIGHT = 150, 54, 22, 8
COLUMN_GAP, ROW_GAP, PADDING = 44, 10, 4
"""Sizes in tenths of the font size; `pipelines.css` has the same."""
MOST_PASSES = 1500
"""With more slots for passing edges, edges go straight instead."""
MOST_COUNTED_EDGES = 4000
"""With more edges, crossings are not counted and one sweep must do."""
_SWEEPS = 6


class Slot(msgspec.Struct, frozen=True):
    """A place in a column: of a job (`name`), of the gate of a stage (`stage_index`), or where an edge passes."""

    kind: str
    """job, gate or pass"""
    key: Key
    y: int
    """Distance of the upper edge from the top of the drawing."""
    height: int


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    before: Key
    after: Key
    path: str
    """The attribute `d` of an SVG path."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    columns: tuple[tuple[Slot, ...], ...]
    edges: tuple[Edge, ...]
    width: int
    height: int


def build_graph(jobs: Sequence[JobProgress]) -> dict[Key, tuple[Key, ...]]:
    """Return the jobs of a pipeline by name, and the gates of stages, each with what it waits for directly."""
    names = {job.name for job in jobs}
    stages: defaultdict[int, list[JobProgress]] = defaultdict(list)
    for job in jobs:
        stages[job.stage_index].append(job)
    graph: dict[Key, tuple[Key, ...]] = {}
    last: dict[Key, None] = {}  # vertices of earlier stages for which no other waits yet
    for index in sorted(stages):
        staged = [job for job in stages[index] if job.by_stage]
        ahead: tuple[Key, ...] = tuple(last)
        if len(ahead) > 1 and len(staged) > 1:
            graph[index] = ahead
            ahead = (index,)
        for job in stages[index]:
            needs: tuple[Key, ...] = tuple(name for name in job.needs if name in names)
            graph[job.name] = ahead if job.by_stage else needs
        for job in stages[index]:
            last[job.name] = None
        keys: list[Key] = [index, *(job.name for job in stages[index])]
        for before in chain.from_iterable(graph.get(key, ()) for key in keys):
            last.pop(before, None)
    return graph


def select_edges(graph: Graph, pairs: Iterable[tuple[str, str]]) -> set[tuple[Key, Key]]:
    """Return the edges between the jobs of each pair, a job and one that followed it: one edge, or two with a gate."""
    edges: set[tuple[Key, Key]] = set()
    for before, after in pairs:
        for key in graph.get(after, ()):
            if key == before:
                edges.add((before, after))
            elif isinstance(key, int) and before in graph[key]:
                edges |= {(before, key), (key, after)}
    return edges


def find_layers(graph: Graph) -> dict[Key, int]:
    """Return the column of each vertex: one more than the highest of those that it waits for, 0 if it waits for none.
    Vertices that wait for each other in a circle, which the compiler refuses, are left out."""
    open_needs = {key: len(before) for key, before in graph.items()}
    after: defaultdict[Key, list[Key]] = defaultdict(list)
    for key, before in graph.items():
        for other in before:
            after[other].append(key)
    layers: dict[Key, int] = {}
    ready = deque(key for key, count in open_needs.items() if not count)
    while ready:
        key = ready.popleft()
        layers[key] = 1 + max((layers[other] for other in graph[key]), default=-1)
        for other in after[key]:
            open_needs[other] -= 1
            if not open_needs[other]:
                ready.append(other)
    return layers


class _Place(msgspec.Struct, frozen=True):
    """A place in a column before its height is known: of a vertex, or where the edges of `key` pass."""

    key: Key
    layer: int
    is_pass: bool = False


def lay_out(graph: Graph) -> Layout:
    """Return the columns with the places of all vertices, and the paths of the edges."""
    layers = find_layers(graph)
    columns: list[list[_Place]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for key, layer in sorted(layers.items(), key=lambda entry: entry[1]):
        columns[layer].append(_Place(key, layer))
    routes = _route_edges(graph, layers, columns)
    _order_columns(columns, routes)
    slots = [_stack(column) for column in columns]
    places = dict(zip(chain.from_iterable(columns), chain.from_iterable(slots), strict=True))
    height = max((column[-1].y + column[-1].height for column in slots if column), default=0) + PADDING
    return Layout(
        columns=tuple(map(tuple, slots)),
        edges=tuple(
            Edge(before=route[0].key, after=route[-1].key, path=_draw([(place, places[place]) for place in route]))
            for route in routes
        ),
        width=max(len(columns) * (CARD_WIDTH + COLUMN_GAP) - COLUMN_GAP, 0) + 2 * PADDING,
        height=height,
    )


def _route_edges(graph: Graph, layers: Mapping[Key, int], columns: Sequence[list[_Place]]) -> list[list[_Place]]:
    """Return the places through which each edge goes, and add those where edges pass to the columns. All edges of a
    vertex share their passes."""
    reach: dict[Key, int] = {}
    for key, before in graph.items():
        for other in before:
            if key in layers and other in layers:
                reach[other] = max(reach.get(other, 0), layers[key])
    passes = {
        key: [_Place(key, layer, is_pass=True) for layer in range(layers[key] + 1, far)] for key, far in reach.items()
    }
    if sum(map(len, passes.values())) > MOST_PASSES:
        passes = {key: [] for key in passes}
    for places in passes.values():
        for place in places:
            columns[place.layer].append(place)
    return [
        [
            _Place(other, layers[other]),
            *(place for place in passes[other] if place.layer < layers[key]),
            _Place(key, layers[key]),
        ]
        for key, before in graph.items()
        if key in layers
        for other in before
        if other in layers
    ]


def _order_columns(columns: list[list[_Place]], routes: Sequence[Sequence[_Place]]) -> None:
    """Reorder the places in each column so that few edges cross."""
    before: defaultdict[_Place, set[_Place]] = defaultdict(set)
    after: defaultdict[_Place, set[_Place]] = defaultdict(set)
    for route in routes:
        for start, stop in pairwise(route):
            after[start].add(stop)
            before[stop].add(start)
    can_count = sum(map(len, after.values())) <= MOST_COUNTED_EDGES
    best = [list(column) for column in columns]
    fewest = _count_crossings(columns, after) if can_count else -1
    for sweep in range(_SWEEPS if can_count else 1):
        if fewest == 0:
            break
        neighbours, order = (before, columns) if sweep % 2 == 0 else (after, columns[::-1])
        positions: dict[_Place, float] = {
            place: number / len(column) for column in columns for number, place in enumerate(column)
        }
        for column in order:
            means = {place: _mean(neighbours[place], positions, positions[place]) for place in column}
            column.sort(key=means.__getitem__)
            positions |= {place: number / len(column) for number, place in enumerate(column)}
        crossings = _count_crossings(columns, after) if can_count else -2
        if crossings < fewest:
            fewest, best = crossings, [list(column) for column in columns]
    columns[:] = best


def _mean(places: Collection[_Place], positions: Mapping[_Place, float], default: float) -> float:
    return sum(positions[place] for place in places) / len(places) if places else default


def _count_crossings(columns: Sequence[Sequence[_Place]], after: Mapping[_Place, set[_Place]]) -> int:
    """Return how many pairs of edges between neighbouring columns cross."""
    crossings = 0
    for column, following in pairwise(columns):
        numbers = {place: number for number, place in enumerate(following)}
        passed: list[int] = []
        for place in column:
            ends = [numbers[other] for other in after.get(place, ()) if other in numbers]
            crossings += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return crossings


def _stack(column: Sequence[_Place]) -> list[Slot]:
    slots: list[Slot] = []
    y = PADDING
    for place in column:
        kind = "pass" if place.is_pass else "gate" if isinstance(place.key, int) else "job"
        height = {"pass": PASS_HEIGHT, "gate": GATE_HEIGHT, "job": CARD_HEIGHT}[kind]
        slots.append(Slot(kind, place.key, y, height))
        y += height + ROW_GAP
    return slots


def _draw(route: Sequence[tuple[_Place, Slot]]) -> str:
    """Return the path of an edge from the right side of its first place to the left side of its last one."""
    x = y = 0.0
    parts: list[str] = []
    for number, (place, slot) in enumerate(route):
        left = PADDING + place.layer * (CARD_WIDTH + COLUMN_GAP)
        middle = slot.y + slot.height / 2
        if not number:
            parts.append(f"M{left + CARD_WIDTH} {middle:g}")
        else:
            bend = (x + left) / 2
            parts.append(f"C{bend:g} {y:g} {bend:g} {middle:g} {left} {middle:g}")
            if number < len(route) - 1:
                parts.append(f"H{left + CARD_WIDTH}")
        x, y = left + CARD_WIDTH, middle
    return "".join(parts)
