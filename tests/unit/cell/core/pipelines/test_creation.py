"""Creation of pipelines and jobs from requests and specs."""

from typing import Any

import pytest

from remuda.cell.core.pipelines.creation import (
    check_depth,
    merge_request_iid,
    new_jobs,
    new_pipeline,
    variables_for_expansion,
)
from remuda.cell.errors import InvalidError, MistakesError
from remuda.cell.values import USER_ID, Pipeline, ProjectVariable
from remuda.cell.values.pipeline_requests import PipelineRequest, Upstream
from remuda.model.job import ProjectId
from remuda.pipeline import Environment, Need
from remuda.testing.builders import NO_SHA, NOW, SHA, a_job, a_pipeline, a_project, a_spec

URL = "https://ci.example"
BEFORE = "b" * 40


def a_request(**changes: Any) -> PipelineRequest:
    values: dict[str, Any] = {"project": a_project(), "source": "push", "ref": "refs/heads/main", "sha": SHA}
    return PipelineRequest(**(values | {"user_id": USER_ID} | changes))


def create_pipeline(**changes: Any) -> Pipeline:
    return new_pipeline(a_request(**changes), default_branch="main", predefined={}, now=NOW)


def a_variable(key: str, value: str, **changes: Any) -> ProjectVariable:
    return ProjectVariable(project_id=ProjectId(1), key=key, value=value, **changes)


@pytest.mark.parametrize(
    ("ref", "name", "is_tag", "iid", "protected"),
    [
        ("refs/heads/main", "main", False, None, True),
        ("refs/heads/refs/tags/x", "refs/tags/x", False, None, False),
        ("refs/tags/main", "main", True, None, False),
        ("refs/merge-requests/7/head", "refs/merge-requests/7/head", False, 7, False),
    ],
)
def test_ref_fields_of_a_pipeline(ref: str, name: str, is_tag: bool, iid: int | None, protected: bool) -> None:
    pipeline = create_pipeline(ref=ref, before_sha=BEFORE)
    assert (pipeline.ref, pipeline.tag, pipeline.merge_request_iid) == (name, is_tag, iid)
    assert pipeline.protected is protected
    assert pipeline.before_sha == (NO_SHA if iid else BEFORE)


@pytest.mark.parametrize("ref", ["refs/merge-requests/0/head", "refs/merge-requests/1/merge", "refs/heads/1/head", "x"])
def test_refs_that_are_not_merge_requests(ref: str) -> None:
    assert merge_request_iid(ref) is None


def test_fields_of_a_child_pipeline() -> None:
    parent = a_pipeline(id=5, before_sha=BEFORE, depth=1)
    child = create_pipeline(source="parent_pipeline", upstream=Upstream(job=a_job(id=9), pipeline=parent))
    assert (child.is_child, child.depth, child.before_sha) == (True, 2, BEFORE)
    assert (child.upstream_job_id, child.upstream_pipeline_id) == (9, 5)
    other = create_pipeline(source="pipeline", upstream=Upstream(job=a_job(id=9), pipeline=parent))
    assert (other.is_child, other.before_sha) == (False, NO_SHA)


def test_limits_of_nested_pipelines() -> None:
    def check(source: str, depth: int, *children: bool) -> None:
        nearest, *rest = (a_pipeline(is_child=is_child, depth=depth) for is_child in children)
        check_depth(a_request(source=source, upstream=Upstream(job=a_job(), pipeline=nearest)), rest)

    check("parent_pipeline", 0, False)
    check("parent_pipeline", 1, True, False)
    check("pipeline", 2, True, True, False)
    check("parent_pipeline", 3, False, True, True)
    with pytest.raises(InvalidError, match="nest 2 deep"):
        check("parent_pipeline", 2, True, True, False)
    check("pipeline", 9, False)
    with pytest.raises(InvalidError, match="more than 10 pipelines"):
        check("pipeline", 10, False)


def test_pipeline_variables_win_over_project_variables() -> None:
    project_variables = [
        a_variable("A", "project", raw=True),
        a_variable("B", "$A", raw=True),
        a_variable("C", "x", protected=True),
    ]
    values, raw = variables_for_expansion(a_pipeline(variables={"A": "pipeline"}), project_variables)
    assert (values, raw) == ({"A": "pipeline", "B": "$A"}, frozenset({"B"}))
    assert variables_for_expansion(a_pipeline(protected=True), project_variables)[0]["C"] == "x"


def test_names_are_expanded_with_the_variables_of_the_job() -> None:
    specs = [
        a_spec("plain"),
        a_spec(
            "review",
            variables={"WHERE": "$CI_COMMIT_REF_SLUG-$CI_JOB_NAME", "RAW": "$WHERE"},
            raw_variables=("RAW",),
            environment=Environment(name="review/$WHERE"),
            resource_group="$CI_ENVIRONMENT_SLUG/$RAW/$OF_PROJECT",
            needs=(Need(job="plain"),),
        ),
    ]
    pipeline = a_pipeline(ref="Feature/1", predefined={"CI_COMMIT_MESSAGE": "$WHERE"})
    plain, review = new_jobs(specs, pipeline, a_project(), [a_variable("OF_PROJECT", "x")], URL)
    assert (plain.environment, plain.resource_group, plain.waits_for) == ("", "", ())
    assert review.environment == "review/feature-1-review"
    assert review.resource_group.startswith("review-feature-1-")
    assert review.resource_group.endswith("/$WHERE/x")
    assert review.waits_for == ("plain",)


def test_a_commit_message_is_not_expanded() -> None:
    spec = a_spec(environment=Environment(name="$CI_COMMIT_MESSAGE"))
    pipeline = a_pipeline(predefined={"CI_COMMIT_MESSAGE": "$CI_JOB_NAME"})
    [job] = new_jobs([spec], pipeline, a_project(), [], URL)
    assert job.environment == "$CI_JOB_NAME"


@pytest.mark.parametrize("name", ["x" * 256, "$A" * 200])
def test_too_long_names_are_errors(name: str) -> None:
    long_variables = {"A": "y" * 1000}
    specs = [
        a_spec(environment=Environment(name=name), variables=long_variables, line=3),
        a_spec("fine", resource_group="$A", variables={"A": "y"}),
        a_spec("deploy", resource_group=name, variables=long_variables, line=7, file="ci/deploy.yml"),
    ]
    with pytest.raises(MistakesError) as caught:
        new_jobs(specs, a_pipeline(file=".gitlab-ci.yml"), a_project(), [], URL)
    first, second = str(caught.value).splitlines()
    assert first.startswith(".gitlab-ci.yml:3:1: build:environment:name: ")
    assert second.startswith("ci/deploy.yml:7:1: deploy:resource_group: ")


def test_which_jobs_end_alone() -> None:
    specs = [
        a_spec("first"),
        a_spec("needed", stage_index=2),
        a_spec("released", stage_index=2, needs=(), release={"tag_name": "v1"}),
        a_spec("measured", stage_index=2, needs=(), coverage="/[0-9]+/"),
        a_spec("one at a time", stage_index=2, needs=(), resource_group="shop"),
        a_spec("needs", stage_index=2, needs=(Need(job="needed"),)),
        a_spec("last", stage_index=2),
        a_spec("beside", stage_index=3, needs=()),
    ]
    jobs = new_jobs(specs, create_pipeline(), a_project(), (), URL)
    assert [job.spec.name for job in jobs if job.ends_alone] == ["needs", "last", "beside"]
