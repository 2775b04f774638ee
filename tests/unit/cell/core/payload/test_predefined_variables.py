"""Predefined variables of pipelines, merge requests, environments and jobs."""

from typing import Any

import pytest

from remuda.cell.core.payload import predefined_variables
from remuda.cell.core.payload.predefined_variables import (
    environment_slug,
    group_name,
    of_pipeline,
    of_project,
    of_spec,
)
from remuda.pipeline import Environment
from remuda.pipeline.predefined_variables import of_merge_request
from remuda.testing.builders import SHA, a_pipeline, a_project, a_spec

URL = "https://ci.example:8443/root/"


def pipeline_variables(**changes: Any) -> dict[str, str]:
    return of_pipeline(a_pipeline(**changes), a_project(path="acme/web/shop", description="Sells"), URL)


def test_variables_of_every_pipeline() -> None:
    values = pipeline_variables(name="Nightly", file="ci/main.yml")
    expected = {
        "CI_PIPELINE_NAME": "Nightly",
        "CI_CONFIG_PATH": "ci/main.yml",
        "CI_PROJECT_NAME": "shop",
        "CI_PROJECT_DESCRIPTION": "Sells",
        "CI_PROJECT_NAMESPACE": "acme/web",
        "CI_PROJECT_NAMESPACE_SLUG": "acme-web",
        "CI_PROJECT_ROOT_NAMESPACE": "acme",
        "CI_PROJECT_PATH_SLUG": "acme-web-shop",
        "CI_PROJECT_URL": "https://ci.example:8443/root/acme/web/shop",
        "CI_SERVER_FQDN": "ci.example:8443",
        "CI_SERVER_HOST": "ci.example",
        "CI_SERVER_VERSION_MAJOR": predefined_variables.GITLAB_VERSION.split(".")[0],
        "CI_COMMIT_BRANCH": "main",
        "CI_COMMIT_SHORT_SHA": SHA[:8],
        "CI_PIPELINE_ID": "1",
    }
    assert {key: values[key] for key in expected} == expected
    assert "CI_PIPELINE_TRIGGERED" not in values
    assert pipeline_variables(source="trigger")["CI_PIPELINE_TRIGGERED"] == "true"


def test_a_pipeline_that_is_not_stored_yet_has_no_numbers() -> None:
    assert {"CI_PIPELINE_ID", "CI_PIPELINE_IID", "CI_PIPELINE_URL"}.isdisjoint(pipeline_variables(id=0, iid=0))


def test_values_stored_with_the_pipeline_win() -> None:
    assert pipeline_variables(predefined={"CI_DEFAULT_BRANCH": "trunk"})["CI_DEFAULT_BRANCH"] == "trunk"


def test_a_tag_pipeline_has_no_branch_variable() -> None:
    values = pipeline_variables(ref="v1", tag=True)
    assert values["CI_COMMIT_TAG"] == "v1"
    assert "CI_COMMIT_BRANCH" not in values


def test_the_ref_of_a_merge_request_is_its_source_branch() -> None:
    project = of_project(a_project(), URL)
    merge_request_variables = of_merge_request(
        iid=7, project=project, source="feature/A", target="main", default_branch="main"
    )
    values = pipeline_variables(
        ref="refs/merge-requests/7/head", merge_request_iid=7, predefined=merge_request_variables
    )
    assert (values["CI_COMMIT_REF_NAME"], values["CI_COMMIT_REF_SLUG"]) == ("feature/A", "feature-a")
    assert values["CI_MERGE_REQUEST_TARGET_BRANCH_PROTECTED"] == "true"
    assert values["CI_MERGE_REQUEST_SOURCE_PROJECT_PATH"] == "acme/shop"
    assert values["CI_OPEN_MERGE_REQUESTS"] == "acme/shop!7"
    assert {"CI_COMMIT_BRANCH", "CI_COMMIT_TAG"}.isdisjoint(values)


def test_environment_variables() -> None:
    spec = a_spec(environment=Environment(name="review/$X", url="https://$X.example", action="stop"))
    values = of_spec(spec, "review/My-App")
    assert values["CI_ENVIRONMENT_NAME"] == "review/My-App"
    assert values["CI_ENVIRONMENT_URL"] == "https://$X.example"
    assert (values["CI_ENVIRONMENT_ACTION"], values["CI_ENVIRONMENT_TIER"]) == ("stop", "development")
    assert "CI_ENVIRONMENT_NAME" not in of_spec(a_spec())


@pytest.mark.parametrize("name", ["production", "review-app-1", "a" * 24])
def test_a_name_that_is_a_slug_does_not_change(name: str) -> None:
    assert environment_slug(name) == name


@pytest.mark.parametrize("name", ["review/feature", "Production", "1st", "a" * 25, "ends-", "a--b"])
def test_other_names_get_a_unique_suffix(name: str) -> None:
    slug = environment_slug(name)
    assert len(slug) <= 24
    assert slug[0].isalpha()
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert slug != environment_slug(name + "x")


@pytest.mark.parametrize(
    ("name", "tier"),
    [("prod", "production"), ("Staging", "staging"), ("qa", "testing"), ("review/x", "development"), ("moon", "other")],
)
def test_tier_of_an_environment_name(name: str, tier: str) -> None:
    assert predefined_variables.tier(name) == tier


@pytest.mark.parametrize(
    ("name", "group"),
    [("test 1/3", "test"), ("test 1 3", "test"), ("test:1:3", "test"), ("test", "test"), ("v 1/2 x", "v 1/2 x")],
)
def test_group_name_of_a_job(name: str, group: str) -> None:
    assert group_name(name) == group
    assert of_spec(a_spec("test: [a, b]", written_name="test"))["CI_JOB_GROUP_NAME"] == "test"
