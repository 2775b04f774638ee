"""Claims of ID tokens; users cannot forge them with variables or merge requests."""

from typing import Any

from remuda.cell.core.payload.id_tokens import build_claims
from remuda.cell.core.payload.variables import JobContext
from remuda.cell.values.people import User
from remuda.pipeline import Environment
from remuda.testing.builders import NOW, SHA, a_job, a_pipeline, a_project, a_runner, a_spec

ADA = User(id=7, username="ada", name="Ada", email="ada@example.org", created_at=NOW, namespace_id=9)


def job_context(**changes: Any) -> JobContext:
    values: dict[str, Any] = {
        "job": a_job(),
        "spec": a_spec(),
        "pipeline": a_pipeline(protected=True),
        "project": a_project(),
        "runner": a_runner(),
        "public_url": "https://ci.example:8443/root",
    }
    return JobContext(**(values | changes))


def test_all_claims() -> None:
    assert build_claims(job_context(), audience="https://vault", token_id="unique", now=NOW) == {
        "iss": "https://ci.example:8443/root",
        "sub": "project_path:acme/shop:ref_type:branch:ref:main",
        "aud": "https://vault",
        "iat": int(NOW),
        "nbf": int(NOW) - 5,
        "exp": int(NOW) + 3600,
        "jti": "unique",
        "namespace_id": "1",
        "namespace_path": "acme",
        "project_id": "1",
        "project_path": "acme/shop",
        "project_visibility": "private",
        "user_id": "1",
        "user_login": "root",
        "user_email": "root@ci.example",
        "user_access_level": "owner",
        "pipeline_id": "1",
        "pipeline_source": "push",
        "job_id": "1",
        "ref": "main",
        "ref_type": "branch",
        "ref_path": "refs/heads/main",
        "ref_protected": "true",
        "runner_id": 1,
        "runner_environment": "self-hosted",
        "sha": SHA,
        "ci_config_ref_uri": "ci.example:8443/root/acme/shop//.gitlab-ci.yml@refs/heads/main",
        "ci_config_sha": SHA,
    }


def test_claims_of_a_tag_with_an_environment_and_two_audiences() -> None:
    claims = build_claims(
        job_context(
            job=a_job(environment="review/one"),
            spec=a_spec(environment=Environment(name="review/$X", action="stop")),
            pipeline=a_pipeline(ref="v1", tag=True),
        ),
        audience=["a", "b"],
        token_id="",
        now=NOW,
    )
    assert (claims["aud"], claims["sub"]) == (["a", "b"], "project_path:acme/shop:ref_type:tag:ref:v1")
    assert (claims["ref_path"], claims["ref_protected"]) == ("refs/tags/v1", "false")
    assert {key: value for key, value in claims.items() if "environment" in key or "tier" in key} == {
        "runner_environment": "self-hosted",
        "environment": "review/one",
        "environment_protected": "false",
        "environment_action": "stop",
        "deployment_tier": "development",
    }


def test_the_ref_of_a_merge_request_is_its_source_branch() -> None:
    pipeline = a_pipeline(
        ref="refs/merge-requests/3/head",
        merge_request_iid=3,
        predefined={"CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "feature"},
    )
    claims = build_claims(job_context(pipeline=pipeline), audience="a", token_id="", now=NOW)
    assert (claims["ref"], claims["ref_path"]) == ("feature", "refs/heads/feature")


def test_a_merge_request_cannot_pass_for_the_protected_branch() -> None:
    def build_merge_request_claims(**predefined: str) -> dict[str, Any]:
        pipeline = a_pipeline(ref="refs/merge-requests/7/head", merge_request_iid=7, predefined=predefined)
        return build_claims(job_context(pipeline=pipeline), audience="x", token_id="unique", now=NOW)

    plain = build_merge_request_claims(CI_MERGE_REQUEST_SOURCE_BRANCH_NAME="feature")
    assert (plain["ref"], plain["ref_path"], plain["ref_protected"]) == ("feature", "refs/heads/feature", "false")
    for claims in build_merge_request_claims(CI_MERGE_REQUEST_SOURCE_BRANCH_NAME="main"), build_merge_request_claims():
        assert (claims["ref"], claims["ref_path"]) == ("refs/merge-requests/7/head",) * 2
        assert claims["sub"] == "project_path:acme/shop:ref_type:branch:ref:refs/merge-requests/7/head"


def test_a_child_pipeline_has_no_ci_config_claims() -> None:
    child = a_pipeline(source="parent_pipeline", is_child=True, file="out/.gitlab-ci.yml")
    claims = build_claims(job_context(pipeline=child), audience="x", token_id="unique", now=NOW)
    assert (claims["ci_config_ref_uri"], claims["ci_config_sha"]) == (None, None)


def test_the_source_claim_is_the_origin_of_the_pipeline() -> None:
    def pipeline_source(**changes: Any) -> str:
        claims = build_claims(job_context(pipeline=a_pipeline(**changes)), audience="x", token_id="unique", now=NOW)
        return str(claims["pipeline_source"])

    assert pipeline_source(source="schedule") == "schedule"
    assert pipeline_source(source="schedule", origin="api") == "api"
    assert pipeline_source(variables={"CI_PIPELINE_SOURCE": "push"}, source="trigger") == "trigger"
    assert pipeline_source(predefined={"CI_PIPELINE_SOURCE": "push"}, source="web") == "web"


def test_predefined_variables_of_a_caller_are_not_claims() -> None:
    forged = dict.fromkeys(
        (
            "CI_PROJECT_NAMESPACE",
            "CI_PROJECT_PATH",
            "CI_PROJECT_VISIBILITY",
            "CI_COMMIT_REF_PROTECTED",
            "GITLAB_USER_LOGIN",
            "GITLAB_USER_EMAIL",
        ),
        "forged",
    )
    claims = build_claims(
        job_context(pipeline=a_pipeline(predefined=forged)), audience="x", token_id="unique", now=NOW, user=ADA
    )
    assert "forged" not in claims.values()
    assert (claims["user_login"], claims["user_email"]) == ("ada", "ada@example.org")


def test_a_pipeline_with_a_given_text_has_no_ci_config_claims() -> None:
    claims = build_claims(
        job_context(pipeline=a_pipeline(is_text_given=True)), audience="x", token_id="unique", now=NOW
    )
    assert (claims["ci_config_ref_uri"], claims["ci_config_sha"]) == (None, None)
