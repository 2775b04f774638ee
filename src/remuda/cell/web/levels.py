"""Finds the level of the user of a page in a project, to show only buttons that the API would not refuse.

Its own module, because the API decides: a page must work with any answer of this one."""

from collections.abc import Mapping
from typing import Any

from remuda.cell.core.access.rights import ADMINISTRATOR
from remuda.cell.values.people import Level
from remuda.cell.web.visit import Visit


async def find_level(visit: Visit, project: Mapping[str, Any]) -> int:
    """Return the level of the user in a project of the API, which they can see; in an archived one at most that of a
    reporter, because nobody may change anything in it."""
    if project["archived"]:
        return Level.REPORTER
    user = visit.caller.user
    if user.is_admin:
        return ADMINISTRATOR
    if project["namespace"]["id"] == user.namespace_id:
        return Level.OWNER
    member = await visit.api.find(f"/api/v4/projects/{project['id']}/members/all/{user.id}")
    return int(member["access_level"]) if member else Level.REPORTER
