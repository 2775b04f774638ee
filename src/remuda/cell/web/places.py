"""Loads the project or group in the address of a page."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from remuda.cell.web.visit import Visit


def segment(text: object) -> str:
    """A text as one segment of an address: `acme/shop` becomes `acme%2Fshop`."""
    return quote(str(text), safe="")


def project_api(project: Mapping[str, Any]) -> str:
    """The address of a project in the API, for further calls about it."""
    return f"/api/v4/projects/{project['id']}"


async def load_project(visit: Visit) -> dict[str, Any]:
    """The project `{project}` in the path of the page, as the API gives it. Raises ApiError 404 if the user may not see
    it."""
    project: dict[str, Any] = await visit.api.get(f"/api/v4/projects/{segment(visit.text('project'))}")
    return project


async def load_group(visit: Visit) -> dict[str, Any]:
    """The group `{group}` in the path of the page. Raises ApiError 404 if the user may not see it."""
    group: dict[str, Any] = await visit.api.get(f"/api/v4/groups/{segment(visit.text('group'))}")
    return group
