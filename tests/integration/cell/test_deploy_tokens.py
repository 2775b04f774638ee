"""Deploy tokens: they fetch with git, and jobs get the one that is named gitlab-deploy-token."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import gitlab
import pytest
from tests.support.cells.people import Person, add_member, create_group, create_group_project, create_person
from tests.support.cells.served_cell import ServedCell
from tests.support.git_client import Clone

PIPELINE = "job: {script: [echo]}\n"


@pytest.fixture
def group(cell: ServedCell) -> int:
    return create_group(cell, "acme")


@pytest.fixture
def shop(cell: ServedCell, group: int) -> str:
    return f"/projects/{create_group_project(cell, group, 'shop', PIPELINE)}"


def create(cell: ServedCell, place: str, **fields: Any) -> dict[str, Any]:
    body = {"name": "deploy", "scopes": ["read_repository"], **fields}
    created = cell.api("POST", f"{place}/deploy_tokens", body)
    assert created.status == 201, created
    token: dict[str, Any] = created.json()
    return token


def fetches(cell: ServedCell, token: dict[str, Any], folder: Path, project: str = "acme/shop", **more: str) -> bool:
    name = more.get("username", token["username"]).replace("+", "%2B")
    address = cell.url.replace("://", f"://{name}:{token['token']}@") + f"/{project}.git"
    clone = Clone(folder)
    return clone.run("ls-remote", address, ok=True).returncode == 0


def refuses(*arguments: Any, **more: Any) -> bool:
    with suppress(AssertionError):
        return not fetches(*arguments, **more)
    return True


def test_a_deploy_token_fetches_and_does_nothing_else(cell: ServedCell, group: int, shop: str, tmp_path: Path) -> None:
    create_group_project(cell, group, "other", PIPELINE)
    token = create(cell, shop)
    assert token["token"].startswith("gldt-")
    assert token["username"] == f"gitlab+deploy-token-{token['id']}"
    assert (token["revoked"], token["expired"], token["expires_at"]) == (False, False, None)
    assert fetches(cell, token, tmp_path)
    assert refuses(cell, token, tmp_path, "acme/other")
    assert refuses(cell, token, tmp_path, username="root")
    clone = Clone(tmp_path / "push")
    clone.git("init", "-q")
    clone.commit(**{"a.txt": "a"})
    address = cell.url.replace("://", f"://gitlab%2Bdeploy-token-{token['id']}:{token['token']}@") + "/acme/shop.git"
    assert clone.run("push", address, "HEAD:refs/heads/x", ok=False).returncode != 0
    assert cell.send("GET", f"/api/v4{shop}", PRIVATE_TOKEN=token["token"]).status == 401
    assert cell.api("DELETE", f"{shop}/deploy_tokens/{token['id']}").status == 204
    assert refuses(cell, token, tmp_path)
    assert cell.api("GET", f"{shop}/deploy_tokens/{token['id']}").status == 404


def test_a_deploy_token_of_a_group(cell: ServedCell, group: int, shop: str, tmp_path: Path) -> None:
    token = create(cell, f"/groups/{group}", username="robot", scopes=["read_repository", "read_registry"])
    assert token["username"] == "robot"
    assert fetches(cell, token, tmp_path)
    create_group(cell, "beta")
    assert [row["id"] for row in cell.api("GET", "/deploy_tokens").json()] == [token["id"]]
    assert [row["id"] for row in cell.api("GET", f"/groups/{group}/deploy_tokens").json()] == [token["id"]]
    assert cell.api("GET", f"{shop}/deploy_tokens/{token['id']}").status == 404


def test_scopes(cell: ServedCell, shop: str, tmp_path: Path) -> None:
    token = create(cell, shop, scopes=["read_registry"])
    assert refuses(cell, token, tmp_path)
    body = {"name": "x", "scopes": ["read_repository", "read_package_registry"]}
    answer = cell.api("POST", f"{shop}/deploy_tokens", body)
    assert answer.headers["X-Remuda-Ignored"] == "scopes.read_package_registry"
    for scopes in ([], ["api"], ["read_package_registry"]):
        assert cell.api("POST", f"{shop}/deploy_tokens", {"name": "x", "scopes": scopes}).status == 400
    body = {"name": "x", "scopes": ["read_repository"], "expires_at": "2001-01-01T00:00:00Z"}
    assert cell.api("POST", f"{shop}/deploy_tokens", body).status == 400
    body["expires_at"] = "2999-01-01T00:00:00Z"
    assert cell.api("POST", f"{shop}/deploy_tokens", body).json()["expires_at"].startswith("2999-01-01T00:00:00")


def test_levels(cell: ServedCell, group: int, shop: str) -> None:
    ada: Person = create_person(cell, "ada")
    add_member(cell, f"groups/{group}", ada, 40)
    body = {"name": "x", "scopes": ["read_repository"]}
    assert ada.api("POST", f"{shop}/deploy_tokens", body).status == 201
    assert ada.api("GET", f"/groups/{group}/deploy_tokens").status == 200
    assert ada.api("POST", f"/groups/{group}/deploy_tokens", body).status == 403
    assert ada.api("GET", "/deploy_tokens").status == 403


def test_jobs_get_the_token_named_for_them(cell: ServedCell, shop: str) -> None:
    token = create(cell, shop, name="gitlab-deploy-token")
    job = cell.new_runner().take()
    variables = {variable["key"]: variable for variable in job["variables"]}
    assert variables["CI_DEPLOY_USER"]["value"] == token["username"]
    assert variables["CI_DEPLOY_PASSWORD"]["value"] == token["token"]
    assert variables["CI_DEPLOY_PASSWORD"]["masked"] is True
    assert cell.api("DELETE", f"{shop}/deploy_tokens/{token['id']}").status == 204
    assert cell.api("POST", f"{shop}/pipeline", {"ref": "main"}).status == 201
    job = cell.new_runner().take()
    assert "CI_DEPLOY_USER" not in {variable["key"] for variable in job["variables"]}


def test_python_gitlab(cell: ServedCell, shop: str, client: gitlab.Gitlab) -> None:
    project = client.projects.get(int(shop.rpartition("/")[2]))
    token = project.deploytokens.create({"name": "py", "scopes": ["read_repository"]})
    assert [row.id for row in project.deploytokens.list()] == [token.id]
    token.delete()
    assert client.deploytokens.list() == []


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59-14:00", "10000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"])
def test_a_far_expiry_does_not_break_the_list(cell: ServedCell, shop: str, time: str) -> None:
    body = {"name": "deploy", "scopes": ["read_repository"], "expires_at": time}
    assert cell.api("POST", f"{shop}/deploy_tokens", body).status in (201, 400)
    assert cell.api("GET", f"{shop}/deploy_tokens").status == 200


def test_the_user_name_of_job_tokens_is_refused(cell: ServedCell, shop: str) -> None:
    body = {"name": "deploy", "scopes": ["read_repository"], "username": "gitlab-ci-token"}
    refused = cell.api("POST", f"{shop}/deploy_tokens", body)
    assert (refused.status, list(refused.json()["message"])) == (400, ["username"])
