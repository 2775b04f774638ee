"""The frame of the pages of settings: the project or group they are about, the sections that its user may open, and the
declaration of a page for both (`Settings.section`)."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response

from remuda.cell.core.access.rights import ADMINISTRATOR
from remuda.cell.http.edge.errors import forbidden, not_found
from remuda.cell.values.people import Level
from remuda.cell.web.places import (
    find_group_level,
    find_project_level,
    group_api,
    load_group,
    load_project,
    project_api,
)
from remuda.cell.web.visit import Pages, Visit

LEVELS = {10: "Guest", 15: "Planner", 20: "Reporter", 30: "Developer", 40: "Maintainer", 50: "Owner"}
"""The access levels that a form offers, with their names."""


class Section(msgspec.Struct, frozen=True):
    """A section of the settings. The levels are those of the API calls that the page needs; None: there is no such
    section."""

    name: str
    title: str
    in_project: int | None
    in_group: int | None


SECTIONS = (
    Section("general", "General", Level.MAINTAINER, Level.OWNER),
    Section("members", "Members", Level.GUEST, Level.GUEST),
    Section("variables", "Variables", Level.MAINTAINER, Level.OWNER),
    Section("schedules", "Schedules", Level.DEVELOPER, None),
    Section("triggers", "Trigger tokens", Level.MAINTAINER, None),
    Section("access_tokens", "Access tokens", Level.MAINTAINER, Level.OWNER),
    Section("deploy_tokens", "Deploy tokens", Level.MAINTAINER, Level.MAINTAINER),
    Section("hooks", "Webhooks", Level.MAINTAINER, Level.OWNER),
    Section("protected_refs", "Protected branches and tags", Level.MAINTAINER, None),
    Section("job_tokens", "Job token access", Level.MAINTAINER, None),
    Section("resource_groups", "Resource groups", Level.REPORTER, None),
    Section("policy", "Step policy", ADMINISTRATOR, ADMINISTRATOR),
)


class Place(msgspec.Struct, frozen=True):
    """The project or group whose settings a page shows."""

    kind: str
    """project or group."""
    values: dict[str, Any]
    """As the API gives it."""
    api: str
    """Its address in the API."""
    address: str
    """Its address on the web."""
    level: int
    """The access level of the user in the project or group."""

    def can_open(self, section: Section) -> bool:
        least = section.in_project if self.kind == "project" else section.in_group
        return least is not None and self.level >= least

    @property
    def name(self) -> str:
        return str(self.values["path_with_namespace" if self.kind == "project" else "full_path"])


Handler = Callable[[Visit, Place], Awaitable[Response]]


async def load_place(visit: Visit) -> Place:
    """The project or group in the address. Raises ApiError 404 if the user may not see it."""
    if "group" in visit.request.path_params:
        group = await load_group(visit)
        level = await find_group_level(visit, group)
        return Place("group", group, group_api(group), f"/groups/{group['full_path']}", level)
    project = await load_project(visit)
    level = await find_project_level(visit, project)
    return Place("project", project, project_api(project), f"/{project['path_with_namespace']}", level)


def list_sections(place: Place) -> list[Section]:
    """The sections that the user may open."""
    return [section for section in SECTIONS if place.can_open(section)]


def render(visit: Visit, place: Place, template: str, section: str = "", **values: Any) -> Response:
    """Render a page of settings. `section`: the current one; empty for a page beside the settings."""
    common: dict[str, Any] = {
        place.kind: place.values,
        "frame": f"settings_{place.kind}.html",
        "tab": "Settings" if section else "Project",
        "section": section,
        "sections": list_sections(place),
        "place": place,
        "api": place.api,
        "levels": LEVELS,
    }
    return visit.render(template, **common, **values)


class Settings(Pages):
    """The pages of a module about settings."""

    def section(self, name: str, rest: str = "") -> Callable[[Handler], Handler]:
        """Declare the page of a section, for projects and for groups if both have it. `rest`: what follows its name in
        the address. The page is refused to those who may not open the section."""
        section = next(section for section in SECTIONS if section.name == name)

        def add(handler: Handler) -> Handler:
            async def show(visit: Visit) -> Response:
                place = await load_place(visit)
                if not place.can_open(section):
                    raise forbidden(f"{section.title} takes a higher access level than yours")
                return await handler(visit, place)

            # Addresses of groups would fit those of projects, too, so they come first.
            if section.in_group is not None:
                self.get(f"/groups/{{group:path}}/-/settings/{name}{rest}")(show)
            if section.in_project is not None:
                self.get(f"/{{project:path}}/-/settings/{name}{rest}")(show)
            return handler

        return add

    def of_project(self, path: str) -> Callable[[Handler], Handler]:
        """Declare a page of a project beside the settings, such as `/-/releases`."""

        def add(handler: Handler) -> Handler:
            async def show(visit: Visit) -> Response:
                if visit.request.path_params["project"].startswith("groups/"):
                    raise not_found("Page")
                return await handler(visit, await load_place(visit))

            self.get(f"/{{project:path}}{path}")(show)
            return handler

        return add
