"""The graph by needs and its layout."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from remuda.cell.web.pipelines.needs_graph import (
    CARD_WIDTH,
    COLUMN_GAP,
    PADDING,
    ROW_GAP,
    Graph,
    build_graph,
    find_layers,
    lay_out,
)
from remuda.wire.user_api import JobProgress


def a_job(name: str, stage: int = 0, *needs: str, by_stage: bool = False) -> JobProgress:
    return JobProgress(
        id=1, name=name, stage=f"s{stage}", stage_index=stage, status="created", needs=needs, by_stage=by_stage
    )


def test_needs_are_edges() -> None:
    graph = build_graph([a_job("a"), a_job("b", 1, "a", "gone"), a_job("c", 1, "b", "a")])
    assert graph == {"a": (), "b": ("a",), "c": ("b", "a")}
    assert find_layers(graph) == {"a": 0, "b": 1, "c": 2}


def test_a_gate_stands_between_many_jobs_that_wait_by_stage() -> None:
    graph = build_graph(
        [a_job(name) for name in "ab"]
        + [a_job(name, 1, by_stage=True) for name in "cd"]
        + [a_job("e", 2, by_stage=True), a_job("f", 2, "a")]
    )
    assert graph[1] == ("a", "b")
    assert graph["c"] == graph["d"] == (1,)
    # One job: no gate. What it waits for indirectly is left out.
    assert graph["e"] == ("c", "d")
    assert graph["f"] == ("a",)


def test_an_edge_over_several_columns_passes_between_the_cards() -> None:
    layout = lay_out({"a": (), "b": ("a",), "c": ("b", "a")})
    assert [[slot.kind for slot in column] for column in layout.columns] == [["job"], ["job", "pass"], ["job"]]
    passing = layout.columns[1][1]
    path = next(edge.path for edge in layout.edges if (edge.before, edge.after) == ("a", "c"))
    assert f"{PADDING + CARD_WIDTH + COLUMN_GAP} {passing.y + passing.height / 2:g}H" in path


def test_the_order_avoids_crossings() -> None:
    layout = lay_out({"a": (), "b": (), "x": ("b",), "y": ("a",)})
    assert [[slot.key for slot in column] for column in layout.columns] in (
        [["a", "b"], ["y", "x"]],
        [["b", "a"], ["x", "y"]],
    )


def test_jobs_in_a_circle_are_left_out() -> None:
    assert [slot.key for column in lay_out({"a": (), "b": ("c",), "c": ("b",)}).columns for slot in column] == ["a"]
    assert lay_out({}).columns == ()


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 25))
    return {
        str(number): tuple(map(str, sorted(draw(st.sets(st.integers(0, number - 1), max_size=4)) if number else ())))
        for number in range(count)
    }


@given(graphs())
def test_every_vertex_has_a_place_of_its_own_after_those_it_waits_for(graph: Graph) -> None:
    layout = lay_out(graph)
    column_of = {slot.key: n for n, column in enumerate(layout.columns) for slot in column if slot.kind == "job"}
    assert column_of.keys() == graph.keys()
    assert all(column_of[before] < column_of[key] for key, needs in graph.items() for before in needs)
    for column in layout.columns:
        assert all(later.y == slot.y + slot.height + ROW_GAP for slot, later in pairwise(column))
        assert column[-1].y + column[-1].height <= layout.height
    assert len(layout.edges) == sum(map(len, graph.values()))
    for edge in layout.edges:
        assert all(0 <= float(x) <= layout.width for x in re.findall(r"[MH]([\d.]+)", edge.path))


def test_two_thousand_jobs_with_many_needs() -> None:
    graph: Graph = {
        f"{stage}-{number}": tuple(f"{stage - 1}-{(number + step) % 200}" for step in range(20)) if stage else ()
        for stage in range(10)
        for number in range(200)
    }
    layout = lay_out(graph)
    assert [len(column) for column in layout.columns] == [200] * 10
