"""Relations between jobs: parts of parallel jobs, needs, and limits of the whole pipeline."""

from collections.abc import Callable

import pytest

from remuda.pipeline import JobSpec, prerequisites

Jobs = Callable[[str], dict[str, JobSpec]]
Mistakes = Callable[[str], list[str]]


def test_a_parallel_job_becomes_its_parts(jobs: Jobs) -> None:
    compiled = jobs("variables: {A: b}\nt: {script: x, parallel: 3}")
    assert list(compiled) == ["t 1/3", "t 2/3", "t 3/3"]
    assert compiled["t 2/3"].variables == {"A": "b", "CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "3"}
    assert {job.line for job in compiled.values()} == {2}


def test_a_need_of_a_parallel_job_means_all_parts(jobs: Jobs) -> None:
    compiled = jobs("""
        t: {script: x, stage: build, parallel: 2}
        all: {script: x, needs: [{job: t, artifacts: false}]}
        one: {script: x, needs: ["t 2/2"]}
        both: {script: x, needs: [t, "t 1/2"]}
        parts: {script: x, parallel: 2, needs: [t]}
    """)
    waits = prerequisites(list(compiled.values()))
    assert waits["all"] == ("t 1/2", "t 2/2")
    assert [need.artifacts for need in compiled["all"].needs or ()] == [False, False]
    assert waits["one"] == ("t 2/2",)
    assert waits["both"] == ("t 1/2", "t 2/2")
    assert waits["parts 2/2"] == ("t 1/2", "t 2/2")


def test_needs_within_a_stage(jobs: Jobs) -> None:
    compiled = jobs("a: {script: x, needs: [b]}\nb: {script: x, needs: [c]}\nc: {script: x}")
    assert prerequisites(list(compiled.values())) == {"a": ("b",), "b": ("c",), "c": ()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "build: {script: x}\na: {script: x, needs: [biuld]}",
            '2:24: a:needs: unknown job "biuld"; did you mean "build"?',
        ),
        (".b: {script: x}\na: {script: x, needs: [.b]}", '2:24: a:needs: unknown job ".b"'),
        ("a: {script: x, needs: [a]}", '1:24: a:needs: the job "a" needs itself'),
        ("a: {script: x, parallel: 2, needs: [a 1/2]}", '1:37: a:needs: the job "a 1/2" needs itself'),
        (
            "a: {script: x, needs: [b]}\nb: {script: x, stage: deploy}",
            '1:24: a:needs: "b" is in the later stage "deploy"',
        ),
        ("b: {script: x}\na: {script: x, needs: [b, {job: b}]}", '2:27: a:needs: needs "b" twice'),
        ("a: {script: x, needs: [b]}\nb: {script: x, needs: [a]}", "2:24: b:needs: needs run in a circle: a -> b -> a"),
        (
            "a: {script: x, parallel: 2}\na 1/2: {script: x}",
            "2:1: a 1/2: has the name of a part of the parallel job on line 1",
        ),
        ("n" * 256 + ": {script: x}", "1:1: " + "n" * 157 + "...: the name of a job has at most 255 characters"),
        ("n" * 253 + ": {script: x, parallel: 2}", "1:1: " + "n" * 157 + "...: the name of a job has at most 255"),
        (
            "b: {script: x, parallel: 51}\na: {script: x, needs: [b]}",
            "2:1: a:needs: the job needs 51 jobs, and at most 50 are allowed",
        ),
        (
            "stages: [" + ", ".join(f"s{i}" for i in range(501)) + "]\na: {script: x}",
            "1:9: stages: has more than 500 entries",
        ),
    ],
)
def test_mistakes_between_jobs(text: str, expected: str, mistakes: Mistakes) -> None:
    assert any(line.startswith(expected) for line in mistakes(text)), mistakes(text)


def test_every_circle_is_reported(mistakes: Mistakes) -> None:
    messages = mistakes("".join(f"j{i}: {{script: x, needs: [j{i ^ 1}]}}\n" for i in range(6)))
    assert [line.split(":")[0] for line in messages] == ["2", "4", "6"]


def test_circles_among_jobs_with_clashing_names(mistakes: Mistakes) -> None:
    text = 'a: {script: x, parallel: 2, needs: ["a 1/2 1/2"]}\na 1/2: {script: x, parallel: 2, needs: [a]}'
    assert any("needs run in a circle" in line for line in mistakes(text))


def test_a_name_of_255_characters_is_fine(jobs: Jobs) -> None:
    assert jobs("n" * 255 + ": {script: x}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "".join(f"j{i}: {{script: x, parallel: 200}}\n" for i in range(60)),
            "51:1: j50: the pipeline has more than 10000 jobs",
        ),
        (
            "variables:\n"
            + "".join(f"  V{i}: x\n" for i in range(10_000))
            + "".join(f"j{i}: {{script: x, variables: {{A: b}}}}\n" for i in range(8000)),
            "the jobs have more than 67108864 characters together",
        ),
        (
            "default:\n  before_script:\n"
            + "    - x\n" * 30_000
            + "".join(f"j{i}: {{script: x}}\n" for i in range(9000)),
            "the jobs have more than 67108864 characters together",
        ),
        (
            "".join(f"g{i}: {{script: x, parallel: 200}}\n" for i in range(25))
            + "".join(f"j{i}: {{script: x, needs: [{', '.join(f'g{g}' for g in range(25))}]}}\n" for i in range(2000)),
            "the jobs have more than 67108864 characters together",
        ),
    ],
    ids=["parallel", "variables", "scripts", "needs"],
)
def test_small_files_that_would_become_huge_are_refused(text: str, expected: str, mistakes: Mistakes) -> None:
    messages = mistakes(text)
    assert len(messages) == 1
    assert expected in messages[0]
