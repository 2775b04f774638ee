"""Loads the project or group in the address of a page, and the level of the user in it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from remuda.cell.core.access.rights import ADMINISTRATOR
from remuda.cell.values.people import Level
from remuda.cell.web.visit import Visit


def segment(text: object) -> str:
    """A text as one segment of an address: `acme/shop` becomes `acme%2Fshop`."""
    return quote(str(text), safe="")


def project_api(project: Mapping[str, Any]) -> str:
    """The address of a project in the API, for further calls about it."""
    return f"/api/v4/projects/{project['id']}"


def group_api(group: Mapping[str, Any]) -> str:
    """The address of a group in the API, for further calls about it."""
    return f"/api/v4/groups/{group['id']}"


def page_number(visit: Visit) -> int:
    """The page of a list that the address asks for; 1 if it asks for none."""
    text = visit.query("page")
    return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 8 else 1


async def load_project(visit: Visit) -> dict[str, Any]:
    """The project `{project}` in the path of the page, as the API gives it. Raises ApiError 404 if the user may not see
    it."""
    project: dict[str, Any] = await visit.api.get(f"/api/v4/projects/{segment(visit.text('project'))}")
    return project


async def load_group(visit: Visit) -> dict[str, Any]:
    """The group `{group}` in the path of the page. Raises ApiError 404 if the user may not see it."""
    group: dict[str, Any] = await visit.api.get(f"/api/v4/groups/{segment(visit.text('group'))}")
    return group


async def find_project_level(visit: Visit, project: Mapping[str, Any]) -> int:
    """The user's level in a project that they may see. Pages hide what needs a higher one; the API decides."""
    namespace, level = project["namespace"], await _find_level(visit, project_api(project))
    if namespace["kind"] == "user" and namespace["full_path"] == visit.caller.user.username:
        return max(level, Level.OWNER)
    return level if project["visibility"] == "private" else max(level, Level.REPORTER)


async def find_group_level(visit: Visit, group: Mapping[str, Any]) -> int:
    """The user's level in a group that they may see; 0: they only see it."""
    return await _find_level(visit, group_api(group))


async def _find_level(visit: Visit, api: str) -> int:
    user = visit.caller.user
    if user.is_admin:
        return ADMINISTRATOR
    member = await visit.api.find(f"{api}/members/all/{user.id}")
    return int(member["access_level"]) if member else 0
