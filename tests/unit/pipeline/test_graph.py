from hypothesis import given
from hypothesis import strategies as st

from remuda.pipeline import Artifacts, JobSpec, Need, artifact_sources, prerequisites
from remuda.pipeline.graph import circles
from remuda.testing.builders import a_spec


def staged(name: str, stage: int, *, needs: list[str | Need] | None = None, artifacts: bool = False) -> JobSpec:
    return a_spec(
        name,
        stage=f"stage {stage}",
        stage_index=stage,
        needs=None if needs is None else tuple(n if isinstance(n, Need) else Need(job=n) for n in needs),
        artifacts=Artifacts(paths=("out",)) if artifacts else None,
    )


def upstream(spec: JobSpec, jobs: list[JobSpec]) -> tuple[str, ...]:
    """The names of the jobs that one job waits for, found without sharing anything between jobs."""
    if spec.needs is None:
        ordered = sorted(jobs, key=lambda job: job.stage_index)
        return tuple(job.name for job in ordered if job.stage_index < spec.stage_index)
    names = {job.name for job in jobs}
    return tuple(need.job for need in spec.needs if need.job in names)


def test_stages_wait_for_all_jobs_of_earlier_stages() -> None:
    jobs = [staged("a", 1), staged("b", 1), staged("c", 4), staged("d", 2)]
    assert prerequisites(jobs) == {"a": (), "b": (), "c": ("a", "b", "d"), "d": ("a", "b")}


def test_needs_replace_the_order_of_stages() -> None:
    jobs = [staged("a", 1), staged("b", 1), staged("c", 2, needs=["b"]), staged("d", 3, needs=[])]
    assert prerequisites(jobs) == {"a": (), "b": (), "c": ("b",), "d": ()}


def test_an_optional_need_that_is_missing_is_not_waited_for() -> None:
    jobs = [staged("a", 1), staged("b", 2, needs=["a", Need(job="gone", optional=True)])]
    assert prerequisites(jobs)["b"] == ("a",)


def test_artifacts_come_from_earlier_stages_that_make_some() -> None:
    jobs = [staged("a", 1, artifacts=True), staged("b", 1), staged("c", 2, artifacts=True), staged("d", 3)]
    assert artifact_sources(jobs) == {"a": (), "b": (), "c": ("a",), "d": ("a", "c")}


def test_artifacts_come_from_needs_that_ask_for_them() -> None:
    jobs = [
        staged("a", 1, artifacts=True),
        staged("b", 1, artifacts=True),
        staged("c", 2, needs=["a", Need(job="b", artifacts=False)]),
    ]
    assert artifact_sources(jobs)["c"] == ("a",)


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.lists(st.integers(0, 19), max_size=4)), max_size=20))
def test_upstream_of_one_job_agrees_with_all(shape: list[tuple[int, list[int] | None]]) -> None:
    jobs = [
        staged(f"j{i}", stage, needs=None if needs is None else [f"j{n}" for n in needs])
        for i, (stage, needs) in enumerate(shape)
    ]
    assert prerequisites(jobs) == {job.name: upstream(job, jobs) for job in jobs}


def test_circles_are_found_apart() -> None:
    edges = {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["e"], "e": ["c"], "f": ["a", "c"]}
    assert list(circles(edges)) == [("a", "b"), ("c", "d", "e")]


def test_a_diamond_is_no_circle() -> None:
    assert list(circles({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []})) == []


def test_a_long_chain_does_not_exhaust_the_stack() -> None:
    length = 50_000
    assert list(circles({str(i): [str(i + 1)] for i in range(length)})) == []


@given(st.dictionaries(st.integers(0, 8).map(str), st.lists(st.integers(0, 8).map(str), max_size=4), max_size=9))
def test_circles_follow_edges_and_exist_when_there_is_no_order(edges: dict[str, list[str]]) -> None:
    found = list(circles(edges))
    for circle in found:
        for name, following in zip(circle, circle[1:] + circle[:1], strict=True):
            assert following in edges[name]
    left = {name: {target for target in targets if target in edges} for name, targets in edges.items()}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert bool(found) == bool(left)
