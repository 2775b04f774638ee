from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.cli.render.graph import ALL_PARTS_UP_TO, Edge, document, graph_of
from remuda.pipeline import Pipeline, compile_pipeline, prerequisites

TEXT = """\
stages: [build, test, deploy]
compile: {stage: build, script: [x]}
docs: {stage: build, script: [x]}
unit: {stage: test, needs: [compile], parallel: 2, script: [x]}
lint: {stage: test, needs: [], allow_failure: true, script: [x]}
check: {stage: test, needs: [lint, {job: none, optional: true}], script: [x]}
release: {stage: deploy, when: manual, script: [x]}
other: {stage: deploy, needs: [unit], trigger: group/other}
none: {script: [x], rules: [{when: never}]}
"""


def levels(pipeline: Pipeline) -> dict[str, int]:
    return {node.name: node.level for node in graph_of(pipeline).nodes}


def test_nodes_and_edges() -> None:
    graph = graph_of(compile_pipeline(TEXT))
    assert {node.name: (node.waits, node.level, node.notes) for node in graph.nodes} == {
        "compile": ("stages", 0, ()),
        "docs": ("stages", 0, ()),
        "unit 1/2": ("needs", 1, ()),
        "unit 2/2": ("needs", 1, ()),
        "lint": ("nothing", 0, ("may fail",)),
        "check": ("needs", 1, ()),
        "release": ("stages", 2, ("manual", "may fail")),
        "other": ("needs", 2, ("trigger",)),
    }
    assert graph.needs() == {
        "unit 1/2": ("compile",),
        "unit 2/2": ("compile",),
        "check": ("lint",),
        "other": ("unit 1/2", "unit 2/2"),
    }


def test_columns() -> None:
    graph = graph_of(compile_pipeline(TEXT))
    assert [column.title for column in graph.columns("stage")] == ["build", "test", "deploy"]
    assert [[node.name for node in column.nodes] for column in graph.columns("needs")] == [
        ["compile", "docs", "lint"],
        ["unit 1/2", "unit 2/2", "check"],
        ["release", "other"],
    ]


def test_parts_become_one_node_in_a_large_pipeline() -> None:
    text = f"{TEXT}many: {{stage: deploy, parallel: {ALL_PARTS_UP_TO}, needs: [unit], script: [x]}}"
    pipeline = compile_pipeline(text)
    graph = graph_of(pipeline)
    assert {node.label for node in graph.nodes} >= {"unit ×2", f"many ×{ALL_PARTS_UP_TO}", "compile"}
    assert Edge(source="unit", target="many") in graph.edges
    assert len(graph_of(pipeline, all_parts=True).nodes) == len(pipeline.jobs)
    assert len(document(pipeline)["nodes"]) == len(pipeline.jobs)


def test_parts_with_different_when_are_shown_as_various() -> None:
    text = """\
job:
  parallel: {matrix: [{A: [x, y]}]}
  script: [x]
  rules:
    - {if: $A == "x", when: manual}
    - when: always
"""
    (node,) = graph_of(compile_pipeline(text), all_parts=False).nodes
    assert (node.when, node.parts) == ("various", 2)


def test_the_document() -> None:
    result = document(compile_pipeline(TEXT))
    assert result["stages"] == ["build", "test", "deploy"]
    assert result["nodes"][2] == {
        "name": "unit 1/2",
        "group": "unit",
        "stage": "test",
        "level": 1,
        "when": "on_success",
        "allow_failure": False,
        "trigger": False,
        "waits_for": "needs",
    }
    assert result["edges"][0] == {"from": "compile", "to": "unit 1/2", "artifacts": True}
    skipped = document(compile_pipeline("workflow: {rules: [{when: never}]}\njob: {script: [x]}"))
    assert (skipped["nodes"], skipped["edges"]) == ([], [])
    assert "says never" in skipped["skipped"]


def test_a_chain_of_needs_longer_than_pythons_stack() -> None:
    jobs = "".join(f"j{n}: {{needs: [j{n + 1}], script: [x]}}\n" for n in range(1500))
    assert levels(compile_pipeline(f"{jobs}j1500: {{needs: [], script: [x]}}"))["j0"] == 1500


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.lists(st.integers(0, 30), max_size=3)), max_size=12))
def test_level_is_the_length_of_the_longest_chain_before_it(drawn_jobs: list[tuple[int, list[int] | None]]) -> None:
    stages = sorted(drawn_jobs, key=lambda each: each[0])
    lines = ["stages: [s0, s1, s2]", "first: {stage: s0, needs: [], script: [x]}"]
    for index, (stage, need_indexes) in enumerate(stages):
        names = sorted({f"j{each % index}" for each in need_indexes or ()}) if index else []
        needs = "" if need_indexes is None else f"needs: [{', '.join(names)}], "
        lines.append(f"j{index}: {{stage: s{stage}, {needs}script: [x]}}")
    pipeline = compile_pipeline("\n".join(lines))
    before = prerequisites(pipeline.jobs)

    def longest_chain(name: str) -> int:
        return 1 + max((longest_chain(each) for each in before[name]), default=-1)

    assert levels(pipeline) == {job.name: longest_chain(job.name) for job in pipeline.jobs}
