"""The graph of a pipeline: nodes in columns, and edges between them. Pure. `graph_text` and `svg` draw it.

Only needs are edges. A job without `needs` waits for all jobs of earlier stages; its field `waits` says so, because
edges to all of them would be too many."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from remuda.lib.dataclass import dataclass
from remuda.pipeline import JobSpec, Pipeline
from remuda.pipeline.errors import printable

VERSION = 1
"""Version of the JSON document."""
ALL_PARTS_UP_TO = 60
"""Maximum number of jobs with which all parts of a parallel job are drawn; in larger pipelines they are one node."""

By = Literal["stage", "needs"]
Waits = Literal["stages", "needs", "nothing"]

_LONG = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A job, or all parts of a parallel job together."""

    name: str
    stage: str
    level: int
    """The length of the longest chain of jobs before it; 0: it starts with the pipeline."""
    when: str
    waits: Waits
    parts: int = 1
    allow_failure: bool = False
    is_trigger: bool = False

    @property
    def label(self) -> str:
        return f"{printable(self.name, _LONG)} ×{self.parts}" if self.parts > 1 else printable(self.name, _LONG)

    @property
    def notes(self) -> tuple[str, ...]:
        """Properties of the job that differ from the default, as words, for example `manual` and `may fail`."""
        words = (
            self.when if self.when != "on_success" else "",
            "trigger" if self.is_trigger else "",
            "may fail" if self.allow_failure else "",
        )
        return tuple(filter(None, words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Says that the job `target` needs `source`; of parallel jobs, that a part of `target` needs a part of `source`."""

    source: str
    target: str
    artifacts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    title: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A pipeline to draw. Nodes are in the order of stages, and of the file within a stage."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    skipped: str | None = None
    """Why there is no pipeline."""

    def columns(self, by: By) -> tuple[Column, ...]:
        if by == "stage":
            stages = groupby(self.nodes, key=lambda node: node.stage)
            return tuple(Column(title=printable(name, _LONG), nodes=tuple(nodes)) for name, nodes in stages)
        levels: dict[int, list[Node]] = {}
        for node in self.nodes:
            levels.setdefault(node.level, []).append(node)
        # A level may have no node if parts of parallel jobs are merged.
        return tuple(
            Column(title=str(number), nodes=tuple(levels[level])) for number, level in enumerate(sorted(levels), 1)
        )

    def needs(self) -> dict[str, tuple[str, ...]]:
        needs: dict[str, list[str]] = {}
        for edge in self.edges:
            needs.setdefault(edge.target, []).append(edge.source)
        return {target: tuple(sources) for target, sources in needs.items()}


def graph_of(pipeline: Pipeline, *, all_parts: bool | None = None) -> Graph:
    """Build a pipeline's graph. `all_parts`: a node per part of parallel jobs; None: up to `ALL_PARTS_UP_TO` jobs."""
    jobs = sorted(pipeline.jobs, key=lambda job: job.stage_index)
    if all_parts is None:
        all_parts = len(jobs) <= ALL_PARTS_UP_TO
    levels = _levels(jobs)
    node_names: dict[str, str] = {}
    groups: dict[tuple[str, str], list[JobSpec]] = {}
    for job in jobs:
        name = job.name if all_parts else job.written_name or job.name
        node_names[job.name] = name
        groups.setdefault((job.stage, name), []).append(job)
    nodes = [_node(name, parts, levels) for (_, name), parts in groups.items()]
    edges: dict[tuple[str, str], bool] = {}
    for job in jobs:
        for need in job.needs or ():
            ends = node_names.get(need.job, ""), node_names[job.name]
            if ends[0] and ends[0] != ends[1]:
                edges[ends] = edges.get(ends, False) or need.artifacts
    return Graph(
        nodes=tuple(nodes),
        edges=tuple(Edge(source=a, target=b, artifacts=artifacts) for (a, b), artifacts in edges.items()),
        skipped=pipeline.skipped,
    )


def _node(name: str, parts: Sequence[JobSpec], levels: Mapping[str, int]) -> Node:
    job = parts[0]
    # Rules may give the parts of a matrix different values.
    same = all(part.when == job.when for part in parts)
    return Node(
        name=name,
        stage=job.stage,
        level=max(levels[part.name] for part in parts),
        when=job.when if same else "various",
        waits="stages" if job.needs is None else "needs" if job.needs else "nothing",
        parts=len(parts),
        allow_failure=any(part.allow_failure for part in parts),
        is_trigger=job.trigger is not None,
    )


def _levels(jobs: Sequence[JobSpec]) -> dict[str, int]:
    """Return the number of jobs in the longest chain before each job. Not recursive: chains may be very long."""
    by_name = {job.name: job for job in jobs}
    levels: dict[str, int] = {}
    for _, stage in groupby(jobs, key=lambda job: job.stage_index):
        after_all = 1 + max(levels.values(), default=-1)
        for first in stage:
            stack = [first.name]
            while stack:
                job = by_name[stack[-1]]
                names = [need.job for need in job.needs or () if need.job in by_name]
                waiting = [name for name in names if name not in levels]
                if waiting and job.name not in levels:
                    stack += waiting
                    continue
                stack.pop()
                if job.needs is None:
                    levels[job.name] = after_all
                else:
                    levels[job.name] = 1 + max((levels[name] for name in names), default=-1)
    return levels


def document(pipeline: Pipeline) -> dict[str, Any]:
    graph = graph_of(pipeline, all_parts=True)
    specs = {job.name: job for job in pipeline.jobs}
    return {
        "version": VERSION,
        "skipped": pipeline.skipped,
        "stages": list(dict.fromkeys(node.stage for node in graph.nodes)),
        "nodes": [
            {
                "name": node.name,
                "group": specs[node.name].written_name or node.name,
                "stage": node.stage,
                "level": node.level,
                "when": node.when,
                "allow_failure": node.allow_failure,
                "trigger": node.is_trigger,
                "waits_for": node.waits,
            }
            for node in graph.nodes
        ],
        "edges": [{"from": edge.source, "to": edge.target, "artifacts": edge.artifacts} for edge in graph.edges],
    }
