"""People for tests of a served cell: users with tokens, groups with members, as an administrator makes them."""

from typing import Any

import gitlab
from tests.support.cells.served_cell import Answer, ServedCell


class Person:
    """A user with a personal token."""

    def __init__(self, cell: ServedCell, user_id: int, username: str, token: str) -> None:
        self.cell = cell
        self.id = user_id
        self.username = username
        self.token = token

    def api(self, method: str, path: str, body: Any = None) -> Answer:
        """One request below /api/v4."""
        return self.cell.send(method, f"/api/v4{path}", body, PRIVATE_TOKEN=self.token)

    def client(self) -> gitlab.Gitlab:
        """The same through python-gitlab."""
        return gitlab.Gitlab(self.cell.url, private_token=self.token)

    def address(self, path: str) -> str:
        """Where git finds a project."""
        return self.cell.url.replace("://", f"://{self.username}:{self.token}@") + f"/{path}.git"

    def with_scopes(self, *scopes: str, **more: Any) -> "Person":
        """The same user with another token."""
        return Person(self.cell, self.id, self.username, _token(self.cell, self.id, scopes, **more))


def _token(cell: ServedCell, user_id: int, scopes: tuple[str, ...], **more: Any) -> str:
    made = cell.api("POST", f"/users/{user_id}/personal_access_tokens", {"name": "t", "scopes": list(scopes), **more})
    assert made.status == 201, made
    return str(made.json()["token"])


def a_person(cell: ServedCell, username: str, *, organization_id: int = 1, admin: bool = False) -> Person:
    """A new user."""
    body = {
        "username": username,
        "name": username.title(),
        "email": f"{username}@example.org",
        "organization_id": organization_id,
        "admin": admin,
    }
    made = cell.api("POST", "/users", body)
    assert made.status == 201, made
    user_id = int(made.json()["id"])
    return Person(cell, user_id, username, _token(cell, user_id, ("api",)))


def a_member(cell: ServedCell, place: str, person: Person, level: int) -> None:
    """Make the person a member of `groups/5` or `projects/7`."""
    made = cell.api("POST", f"/{place}/members", {"user_id": person.id, "access_level": level})
    assert made.status == 201, made


def an_organization(cell: ServedCell, path: str) -> int:
    """A new organization's number."""
    made = cell.api("POST", "/organizations", {"name": path, "path": path})
    assert made.status == 201, made
    return int(made.json()["id"])


def a_group(cell: ServedCell, path: str, **more: Any) -> int:
    """A new group's number."""
    made = cell.api("POST", "/groups", {"name": path, "path": path, **more})
    assert made.status == 201, made
    return int(made.json()["id"])


def a_project_in(cell: ServedCell, group_id: int, name: str, pipeline_file: str = "", **more: Any) -> int:
    """A new project's number; with a pipeline file it has a first commit."""
    made = cell.api("POST", "/projects", {"name": name, "namespace_id": group_id, **more})
    assert made.status == 201, made
    project_id = int(made.json()["id"])
    if pipeline_file:
        actions = [{"action": "create", "file_path": ".gitlab-ci.yml", "content": pipeline_file}]
        body = {"branch": "main", "commit_message": "First", "actions": actions}
        assert cell.api("POST", f"/projects/{project_id}/repository/commits", body).status == 201
    return project_id
