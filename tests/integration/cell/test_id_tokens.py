"""ID tokens, verified as a relying party does it: with OpenID Connect discovery and the published keys."""

from typing import Any

import jwt
import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell

PIPELINE = """
deploy:
  script: [deploy]
  variables: {WHO: vault}
  environment: {name: production}
  id_tokens:
    VAULT_TOKEN: {aud: 'https://$WHO.example'}
    CLOUD_TOKEN: {aud: [https://one.example, https://two.example]}
"""


def public_keys(cell: ServedCell, algorithm: str) -> list[dict[str, str]]:
    """Return the public keys of one algorithm."""
    return [key for key in cell.send("GET", "/oauth/discovery/keys").json()["keys"] if key["alg"] == algorithm]


def verify_token(cell: ServedCell, token: str, audience: str) -> dict[str, Any]:
    """Verify a token like a relying party, with PyJWT and what the cell publishes; return its claims."""
    configuration = cell.send("GET", "/.well-known/openid-configuration").json()
    assert configuration["issuer"] == cell.url
    assert configuration["jwks_uri"] == f"{cell.url}/oauth/discovery/keys"
    key = jwt.PyJWKClient(configuration["jwks_uri"]).get_signing_key_from_jwt(token)
    claims: dict[str, Any] = jwt.decode(
        token,
        key.key,
        algorithms=configuration["id_token_signing_alg_values_supported"],
        audience=audience,
        issuer=configuration["issuer"],
    )
    return claims


def test_a_token_is_verified_with_the_published_keys(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", PIPELINE)
    assert public_keys(cell, "RS256") == []
    job = runner.take()
    variables = {variable["key"]: variable for variable in job["variables"]}
    claims = verify_token(cell, variables["VAULT_TOKEN"]["value"], "https://vault.example")
    assert claims["sub"] == "project_path:root/app:ref_type:branch:ref:main"
    assert (claims["job_id"], claims["project_id"], claims["ref_protected"]) == (str(job["id"]), str(project), "true")
    assert (claims["environment"], claims["deployment_tier"]) == ("production", "production")
    assert claims["exp"] - claims["iat"] == job["runner_info"]["timeout"]
    assert verify_token(cell, variables["CLOUD_TOKEN"]["value"], "https://two.example")["sha"] == job["git_info"]["sha"]
    with pytest.raises(jwt.InvalidAudienceError):
        verify_token(cell, variables["CLOUD_TOKEN"]["value"], "https://vault.example")
    assert variables["VAULT_TOKEN"]["masked"]
    assert not variables["VAULT_TOKEN"]["public"]


def test_an_id_token_is_not_accepted_by_the_cell(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", PIPELINE)
    job = runner.take()
    token = next(variable["value"] for variable in job["variables"] if variable["key"] == "VAULT_TOKEN")
    for presented in (token, f"glcbt-{token}"):
        assert runner.put({"id": job["id"], "token": presented}, "success").status == 403
    assert cell.send("GET", "/api/v4/projects", PRIVATE_TOKEN=token).status == 401


def test_the_keys_survive_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cell") / "data"
    with ServedCell(folder) as cell:
        cell.new_project("app", PIPELINE)
        cell.new_runner().take()
        before = public_keys(cell, "RS256")
    with ServedCell(folder) as cell:
        assert public_keys(cell, "RS256") == before
        cell.api("POST", "/projects/1/pipeline", {"ref": "main"})
        cell.new_runner().take()
        assert public_keys(cell, "RS256") == before
    assert len(before) == 1


def claims_of(cell: ServedCell, job: dict[str, Any]) -> dict[str, Any]:
    token = next(variable["value"] for variable in job["variables"] if variable["key"] == "VAULT_TOKEN")
    return verify_token(cell, token, "https://vault.example")


def test_the_source_is_what_really_started_the_pipeline(cell: ServedCell, runner: ScriptedRunner) -> None:
    project = cell.new_project("app", PIPELINE)
    root, variable = f"/projects/{project}", {"key": "CI_PIPELINE_SOURCE", "value": "push"}
    assert claims_of(cell, runner.take())["pipeline_source"] == "push"
    assert cell.api("POST", f"{root}/pipeline", {"ref": "main", "variables": [variable]}).status == 201
    assert claims_of(cell, runner.take())["pipeline_source"] == "api"
    token = cell.api("POST", f"{root}/triggers", {"description": "x"}).json()["token"]
    call = {"token": token, "ref": "main", "variables": {"CI_PIPELINE_SOURCE": "push"}}
    assert cell.send("POST", f"/api/v4{root}/trigger/pipeline", call).status == 201
    job = runner.take()
    assert claims_of(cell, job)["pipeline_source"] == "trigger"
    assert cell.send("POST", f"/api/v4{root}/trigger/pipeline", call | {"token": job["token"]}).status == 201
    assert claims_of(cell, runner.take())["pipeline_source"] == "pipeline"
    schedule = {"description": "x", "ref": "main", "cron": "0 4 * * *"}
    schedule_id = cell.api("POST", f"{root}/pipeline_schedules", schedule).json()["id"]
    assert cell.api("POST", f"{root}/pipeline_schedules/{schedule_id}/variables", variable).status == 201
    assert cell.api("POST", f"{root}/pipeline_schedules/{schedule_id}/play").status == 201
    assert claims_of(cell, runner.take())["pipeline_source"] == "schedule"


def test_no_claim_can_be_set_by_the_caller(cell: ServedCell, runner: ScriptedRunner) -> None:
    """`remuda run` sends predefined variables for rules, and any developer may send such a request."""
    project = cell.new_project("app", "quiet: {script: [echo], when: manual}\n")
    sha = cell.api("GET", f"/projects/{project}/repository/branches/main").json()["commit"]["id"]
    refs = {"refs": {"refs/merge-requests/1/head": sha}}
    assert cell.send("PUT", f"/api/remuda/v1/projects/{project}/refs", refs, PRIVATE_TOKEN=cell.token).status == 204
    forged = {
        "CI_DEFAULT_BRANCH": "other",
        "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "main",
        "CI_PROJECT_NAMESPACE": "forged",
        "CI_PROJECT_VISIBILITY": "forged",
        "CI_PIPELINE_SOURCE": "forged",
    }
    text = f"{PIPELINE}  rules: [{{when: always}}]\n"
    body = {"ref": "refs/merge-requests/1/head", "source": "schedule", "text": text, "predefined": forged}
    created = cell.send("POST", f"/api/remuda/v1/projects/{project}/pipelines", body, PRIVATE_TOKEN=cell.token)
    assert created.status == 201, created
    claims = claims_of(cell, runner.take())
    assert claims["pipeline_source"] == "api"
    assert claims["sub"] == "project_path:root/app:ref_type:branch:ref:refs/merge-requests/1/head"
    assert (claims["namespace_path"], claims["project_visibility"]) == ("root", "private")
    assert (claims["ci_config_ref_uri"], claims["ci_config_sha"]) == (None, None)
