"""Creates users, groups, projects and memberships in a served cell, as its administrator."""

from typing import Any

import gitlab
from tests.support.cells.served_cell import Answer, ServedCell, commit_file


class Person:
    """A user with a personal token."""

    def __init__(self, cell: ServedCell, user_id: int, username: str, token: str) -> None:
        self.cell = cell
        self.id = user_id
        self.username = username
        self.token = token

    def api(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request below /api/v4 with the user's token."""
        return self.cell.send(method, f"/api/v4{path}", body, PRIVATE_TOKEN=self.token)

    def client(self) -> gitlab.Gitlab:
        """A client of python-gitlab with the user's token."""
        return gitlab.Gitlab(self.cell.url, private_token=self.token)

    def address(self, path: str) -> str:
        """URL of a project's repository with the user's credentials."""
        return self.cell.url.replace("://", f"://{self.username}:{self.token}@") + f"/{path}.git"

    def with_scopes(self, *scopes: str, **more: Any) -> "Person":
        """The same user with a new token that has these scopes."""
        return Person(self.cell, self.id, self.username, _token(self.cell, self.id, scopes, **more))


def _token(cell: ServedCell, user_id: int, scopes: tuple[str, ...], **more: Any) -> str:
    created = cell.api(
        "POST", f"/users/{user_id}/personal_access_tokens", {"name": "t", "scopes": list(scopes), **more}
    )
    assert created.status == 201, created
    return str(created.json()["token"])


def create_person(cell: ServedCell, username: str, *, organization_id: int = 1, admin: bool = False) -> Person:
    """Create a user with a token of the scope `api`."""
    body = {
        "username": username,
        "name": username.title(),
        "email": f"{username}@example.org",
        "organization_id": organization_id,
        "admin": admin,
    }
    created = cell.api("POST", "/users", body)
    assert created.status == 201, created
    user_id = int(created.json()["id"])
    return Person(cell, user_id, username, _token(cell, user_id, ("api",)))


def add_member(cell: ServedCell, place: str, person: Person, level: int) -> None:
    """Add a member to `place`, such as `groups/5` or `projects/7`."""
    created = cell.api("POST", f"/{place}/members", {"user_id": person.id, "access_level": level})
    assert created.status == 201, created


def create_organization(cell: ServedCell, path: str) -> int:
    """Create an organization. Returns its id."""
    created = cell.api("POST", "/organizations", {"name": path, "path": path})
    assert created.status == 201, created
    return int(created.json()["id"])


def create_group(cell: ServedCell, path: str, **more: Any) -> int:
    """Create a group. Returns its id."""
    created = cell.api("POST", "/groups", {"name": path, "path": path, **more})
    assert created.status == 201, created
    return int(created.json()["id"])


def create_group_project(cell: ServedCell, group_id: int, name: str, pipeline_file: str = "", **more: Any) -> int:
    """Create a project in a group, with a first commit if there is a pipeline file. Returns its id."""
    created = cell.api("POST", "/projects", {"name": name, "namespace_id": group_id, **more})
    assert created.status == 201, created
    project_id = int(created.json()["id"])
    if pipeline_file:
        commit_file(cell, project_id, pipeline_file, commit_message="First")
    return project_id
