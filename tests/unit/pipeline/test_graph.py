from hypothesis import given
from hypothesis import strategies as st

from remuda.pipeline import Artifacts, JobSpec, Need, artifact_sources, prerequisites
from remuda.pipeline.graph import circles
from remuda.testing.builders import a_spec


def job_in_stage(name: str, stage: int, *, needs: list[str | Need] | None = None, artifacts: bool = False) -> JobSpec:
    return a_spec(
        name,
        stage=f"stage {stage}",
        stage_index=stage,
        needs=None if needs is None else tuple(n if isinstance(n, Need) else Need(job=n) for n in needs),
        artifacts=Artifacts(paths=("out",)) if artifacts else None,
    )


def upstream(spec: JobSpec, jobs: list[JobSpec]) -> tuple[str, ...]:
    """Return the names of the jobs that a job waits for, computed for this job alone."""
    if spec.needs is None:
        ordered = sorted(jobs, key=lambda job: job.stage_index)
        return tuple(job.name for job in ordered if job.stage_index < spec.stage_index)
    names = {job.name for job in jobs}
    return tuple(need.job for need in spec.needs if need.job in names)


def test_stages_wait_for_all_jobs_of_earlier_stages() -> None:
    jobs = [job_in_stage("a", 1), job_in_stage("b", 1), job_in_stage("c", 4), job_in_stage("d", 2)]
    assert prerequisites(jobs) == {"a": (), "b": (), "c": ("a", "b", "d"), "d": ("a", "b")}


def test_needs_replace_the_order_of_stages() -> None:
    jobs = [
        job_in_stage("a", 1),
        job_in_stage("b", 1),
        job_in_stage("c", 2, needs=["b"]),
        job_in_stage("d", 3, needs=[]),
    ]
    assert prerequisites(jobs) == {"a": (), "b": (), "c": ("b",), "d": ()}


def test_an_optional_need_that_is_missing_is_not_waited_for() -> None:
    jobs = [job_in_stage("a", 1), job_in_stage("b", 2, needs=["a", Need(job="gone", optional=True)])]
    assert prerequisites(jobs)["b"] == ("a",)


def test_artifacts_come_from_earlier_stages_that_make_some() -> None:
    jobs = [
        job_in_stage("a", 1, artifacts=True),
        job_in_stage("b", 1),
        job_in_stage("c", 2, artifacts=True),
        job_in_stage("d", 3),
    ]
    assert artifact_sources(jobs) == {"a": (), "b": (), "c": ("a",), "d": ("a", "c")}


def test_artifacts_come_from_needs_that_ask_for_them() -> None:
    jobs = [
        job_in_stage("a", 1, artifacts=True),
        job_in_stage("b", 1, artifacts=True),
        job_in_stage("c", 2, needs=["a", Need(job="b", artifacts=False)]),
    ]
    assert artifact_sources(jobs)["c"] == ("a",)


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | st.lists(st.integers(0, 19), max_size=4)), max_size=20))
def test_upstream_of_one_job_agrees_with_all(shape: list[tuple[int, list[int] | None]]) -> None:
    jobs = [
        job_in_stage(f"j{i}", stage, needs=None if needs is None else [f"j{n}" for n in needs])
        for i, (stage, needs) in enumerate(shape)
    ]
    assert prerequisites(jobs) == {job.name: upstream(job, jobs) for job in jobs}


def test_separate_circles_are_found_separately() -> None:
    edges = {"a": ["b"], "b": ["a"], "c": ["d"], "d": ["e"], "e": ["c"], "f": ["a", "c"]}
    assert list(circles(edges)) == [("a", "b"), ("c", "d", "e")]


def test_a_diamond_is_no_circle() -> None:
    assert list(circles({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []})) == []


def test_a_long_chain_does_not_exhaust_the_stack() -> None:
    length = 50_000
    assert list(circles({str(i): [str(i + 1)] for i in range(length)})) == []


@given(st.dictionaries(st.integers(0, 8).map(str), st.lists(st.integers(0, 8).map(str), max_size=4), max_size=9))
def test_circles_follow_edges_and_exist_when_there_is_no_order(edges: dict[str, list[str]]) -> None:
    cycles = list(circles(edges))
    for circle in cycles:
        for name, following in zip(circle, circle[1:] + circle[:1], strict=True):
            assert following in edges[name]
    remaining = {name: {target for target in targets if target in edges} for name, targets in edges.items()}
    while free := [name for name, targets in remaining.items() if not targets & remaining.keys()]:
        for name in free:
            del remaining[name]
    assert bool(cycles) == bool(remaining)
