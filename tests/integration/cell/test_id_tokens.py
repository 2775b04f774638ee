"""Identity tokens as those see them who are shown one: by OpenID Connect's discovery and public keys."""

from typing import Any

import jwt
import pytest

from remuda.testing.served_cell import ScriptedRunner, ServedCell

PIPELINE = """
deploy:
  script: [deploy]
  variables: {WHO: vault}
  environment: {name: production}
  id_tokens:
    VAULT_TOKEN: {aud: 'https://$WHO.example'}
    CLOUD_TOKEN: {aud: [https://one.example, https://two.example]}
"""


def published(cell: ServedCell, algorithm: str) -> list[dict[str, str]]:
    """The public keys of one kind."""
    return [key for key in cell.send("GET", "/oauth/discovery/keys").json()["keys"] if key["alg"] == algorithm]


def verified(cell: ServedCell, token: str, audience: str) -> dict[str, Any]:
    """What a relying party does, with PyJWT and what the cell publishes."""
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
    assert published(cell, "RS256") == []
    job = runner.take()
    given = {each["key"]: each for each in job["variables"]}
    claims = verified(cell, given["VAULT_TOKEN"]["value"], "https://vault.example")
    assert claims["sub"] == "project_path:root/app:ref_type:branch:ref:main"
    assert (claims["job_id"], claims["project_id"], claims["ref_protected"]) == (str(job["id"]), str(project), "true")
    assert (claims["environment"], claims["deployment_tier"]) == ("production", "production")
    assert claims["exp"] - claims["iat"] == job["runner_info"]["timeout"]
    assert verified(cell, given["CLOUD_TOKEN"]["value"], "https://two.example")["sha"] == job["git_info"]["sha"]
    with pytest.raises(jwt.InvalidAudienceError):
        verified(cell, given["CLOUD_TOKEN"]["value"], "https://vault.example")
    assert given["VAULT_TOKEN"]["masked"]
    assert not given["VAULT_TOKEN"]["public"]


def test_a_token_opens_nothing_in_the_cell(cell: ServedCell, runner: ScriptedRunner) -> None:
    cell.new_project("app", PIPELINE)
    job = runner.take()
    token = next(each["value"] for each in job["variables"] if each["key"] == "VAULT_TOKEN")
    for shown in (token, f"glcbt-{token}"):
        assert runner.put({"id": job["id"], "token": shown}, "success").status == 403
    assert cell.send("GET", "/api/v4/projects", PRIVATE_TOKEN=token).status == 401


def test_the_keys_outlive_the_process(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cell") / "data"
    with ServedCell(folder) as cell:
        cell.new_project("app", PIPELINE)
        cell.new_runner().take()
        before = published(cell, "RS256")
    with ServedCell(folder) as cell:
        assert published(cell, "RS256") == before
        cell.api("POST", "/projects/1/pipeline", {"ref": "main"})
        cell.new_runner().take()
        assert published(cell, "RS256") == before
    assert len(before) == 1
