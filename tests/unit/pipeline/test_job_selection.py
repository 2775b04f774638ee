import pytest

from remuda.pipeline import Pipeline, artifact_sources, compile_pipeline, prerequisites
from remuda.pipeline.job_selection import ChoiceError, choose

FILE = """
stages: [build, test, deploy]
compile: {stage: build, script: [x], artifacts: {paths: [out]}}
docs: {stage: build, script: [x], artifacts: {paths: [site]}}
unit: {stage: test, script: [x], parallel: 2, needs: [compile]}
lint: {stage: test, script: [x], needs: []}
publish: {stage: deploy, script: [x], when: manual, dependencies: [docs]}
rescue: {stage: deploy, script: [x], when: on_failure}
never: {stage: deploy, script: [x], rules: [{if: $NOPE}]}
"""


@pytest.fixture(scope="module")
def whole() -> Pipeline:
    return compile_pipeline(FILE)


def names(pipeline: Pipeline) -> list[str]:
    return [job.name for job in pipeline.jobs]


def test_without_a_choice_the_pipeline_is_unchanged(whole: Pipeline) -> None:
    assert choose(whole) is whole


@pytest.mark.parametrize(
    ("jobs", "stages", "expected"),
    [
        (["lint"], [], ["lint"]),
        (["unit 2/2"], [], ["compile", "unit 2/2"]),
        (["unit"], [], ["compile", "unit 1/2", "unit 2/2"]),
        (["unit", "docs"], [], ["compile", "docs", "unit 1/2", "unit 2/2"]),
        ([], ["build"], ["compile", "docs"]),
        (["lint"], ["build"], ["compile", "docs", "lint"]),
        (["publish"], [], ["compile", "docs", "unit 1/2", "unit 2/2", "lint", "publish"]),
    ],
)
def test_chosen_jobs_with_their_needs(whole: Pipeline, jobs: list[str], stages: list[str], expected: list[str]) -> None:
    assert names(choose(whole, jobs=jobs, stages=stages)) == expected


def test_chosen_jobs_without_their_needs(whole: Pipeline) -> None:
    chosen = choose(whole, jobs=["unit 1/2", "publish"], with_needs=False)
    assert names(chosen) == ["unit 1/2", "publish"]
    assert prerequisites(chosen.jobs) == {"unit 1/2": (), "publish": ("unit 1/2",)}
    assert set(artifact_sources(chosen.jobs).values()) == {()}


def test_chosen_jobs_keep_their_order_among_themselves(whole: Pipeline) -> None:
    chosen = choose(whole, jobs=["compile", "unit 1/2"], with_needs=False)
    assert prerequisites(chosen.jobs)["unit 1/2"] == ("compile",)
    assert artifact_sources(chosen.jobs)["unit 1/2"] == ("compile",)


def test_a_job_chosen_by_name_runs(whole: Pipeline) -> None:
    assert [job.when for job in choose(whole, jobs=["publish", "rescue"], with_needs=False).jobs] == ["on_success"] * 2
    assert [job.when for job in choose(whole, stages=["deploy"], with_needs=False).jobs] == ["manual", "on_failure"]


@pytest.mark.parametrize(
    ("jobs", "stages", "expected"),
    [
        (["compil"], [], 'there is no job "compil"; did you mean "compile"?'),
        (["UNIT"], [], 'there is no job "UNIT"; did you mean "unit'),
        (["zzz"], [], 'there is no job "zzz"; there are "compile", "docs"'),
        (["never"], [], 'the job "never" is not in this pipeline: '),
        ([], ["tests"], 'there is no stage "tests"; did you mean "test"?'),
        ([], [".pre"], 'no job is in the stage ".pre"'),
    ],
)
def test_unknown_names_are_refused(whole: Pipeline, jobs: list[str], stages: list[str], expected: str) -> None:
    with pytest.raises(ChoiceError) as caught:
        choose(whole, jobs=jobs, stages=stages)
    assert str(caught.value).startswith(expected)


def test_the_last_stage_of_a_wide_pipeline_comes_with_all_jobs() -> None:
    stages = [f"s{number}" for number in range(10)]
    jobs = [f"j{number}: {{stage: s{number % 10}, script: [x]}}" for number in range(2000)]
    wide = compile_pipeline(f"stages: [{', '.join(stages)}]\n" + "\n".join(jobs))
    assert len(choose(wide, stages=["s9"]).jobs) == 2000
