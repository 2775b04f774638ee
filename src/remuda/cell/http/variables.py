"""Project variables as GitLab's API has them, and those that a call gives to one pipeline, schedule or job.

Decided here: which names and values a variable may have, and which may be masked, by GitLab's rules.
"""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.access import in_project
from remuda.cell.http.bodies import parameters
from remuda.cell.http.edge import Edge, Endpoint
from remuda.cell.http.errors import bad_field, bad_parameter, json_answer, no_content, not_found
from remuda.cell.http.lookup import project_in_path, text_in_path
from remuda.cell.http.pagination import slice_answer
from remuda.cell.http.views import variable_view
from remuda.cell.people import Level
from remuda.cell.values import Project, ProjectVariable
from remuda.model.job import ProjectId

MAX_VALUE = 10_000
_NAME = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)
_MASKABLE = re.compile(r"[A-Za-z0-9_+=/@:.~-]{8,}", re.ASCII)
"""A value that is expanded: what a shell would change could not be found in the log again."""
_MASKABLE_RAW = re.compile(r"\S{8,}")


class GivenVariable(msgspec.Struct, kw_only=True):
    """A variable given to one pipeline, schedule or job."""

    key: str
    value: str | bool | int | float = ""
    variable_type: str = "env_var"

    def text(self) -> str:
        """The value as jobs get it."""
        return self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()


def check_variable(key: str, value: str) -> None:
    """400 when no job could have such a variable."""
    if not _NAME.fullmatch(key):
        raise bad_parameter("variables[key] is invalid: letters, digits and _ only, 1 to 255 of them")
    if "\0" in value:
        raise bad_parameter(f"variables[value] of {key} is invalid: no environment can carry a NUL character")


def read_given(given: Iterable[GivenVariable]) -> tuple[dict[str, str], frozenset[str]]:
    """Names with values, and those among the names whose values go into files."""
    variables: dict[str, str] = {}
    files: set[str] = set()
    for variable in given:
        check_variable(variable.key, variable.text())
        if variable.variable_type not in ("env_var", "file"):
            raise bad_parameter("variables[variable_type] does not have a valid value")
        variables[variable.key] = variable.text()
        (files.add if variable.variable_type == "file" else files.discard)(variable.key)
    return variables, frozenset(files)


class Given(msgspec.Struct, kw_only=True):
    """POST and PUT."""

    key: str | None = None
    value: str | None = None
    variable_type: str | None = None
    protected: bool | None = None
    masked: bool | None = None
    raw: bool | None = None
    description: str | None = None
    environment_scope: str | None = None


def merged(old: ProjectVariable, given: Given) -> ProjectVariable:
    """The variable with what was given; 400 when it cannot be so."""
    if given.variable_type not in (None, "env_var", "file"):
        raise bad_parameter("variable_type does not have a valid value")
    if given.environment_scope not in (None, "*"):
        raise bad_field("environment_scope", "only * is supported")
    new = replace(
        old,
        value=old.value if given.value is None else given.value,
        file=old.file if given.variable_type is None else given.variable_type == "file",
        protected=old.protected if given.protected is None else given.protected,
        masked=old.masked if given.masked is None else given.masked,
        raw=old.raw if given.raw is None else given.raw,
        description=old.description if given.description is None else given.description,
    )
    if not _NAME.fullmatch(new.key):
        raise bad_field("key", "can contain only letters, digits and '_', and has 1 to 255 characters")
    if len(new.value) > MAX_VALUE:
        raise bad_field("value", f"is too long (maximum is {MAX_VALUE} characters)")
    if "\0" in new.value:
        raise bad_field("value", "has a NUL character, which no environment can carry")
    if new.masked and not (_MASKABLE_RAW if new.raw else _MASKABLE).fullmatch(new.value):
        raise bad_field(
            "value",
            "is invalid: a masked value is one line of at least 8 characters without blanks"
            + ("" if new.raw else ", made of letters, digits and _+=/@:.~- (more with raw)"),
        )
    return new


async def create(edge: Edge, request: Request) -> Response:
    """POST /projects/:id/variables."""
    project = await project_in_path(edge, request)
    given = await parameters(request, Given, limit_bytes=edge.settings.body_limit_bytes)
    missing = [name for name in ("key", "value") if getattr(given, name) is None]
    if missing:
        raise bad_parameter(", ".join(f"{name} is missing" for name in missing))
    variable = merged(ProjectVariable(project_id=ProjectId(project.id), key=given.key or "", value=""), given)
    if not await edge.store.put_variable(variable, replace=False):
        raise bad_field("key", f"({variable.key}) has already been taken")
    return json_answer(variable_view(variable), 201)


async def _find(edge: Edge, request: Request) -> tuple[Project, ProjectVariable]:
    project = await project_in_path(edge, request)
    key = text_in_path(request, "key")
    for variable in await edge.store.variables(project.id):
        if variable.key == key:
            return project, variable
    raise not_found("Variable")


async def show(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/variables/:key."""
    _, variable = await _find(edge, request)
    return json_answer(variable_view(variable))


async def list_all(edge: Edge, request: Request) -> Response:
    """GET /projects/:id/variables."""
    project = await project_in_path(edge, request)
    return slice_answer(request, [variable_view(one) for one in await edge.store.variables(project.id)])


async def update(edge: Edge, request: Request) -> Response:
    """PUT /projects/:id/variables/:key."""
    _, variable = await _find(edge, request)
    given = await parameters(request, Given, limit_bytes=edge.settings.body_limit_bytes)
    changed = merged(variable, given)
    if not await edge.store.put_variable(changed, replace=True):
        raise not_found("Variable")
    return json_answer(variable_view(changed))


async def remove(edge: Edge, request: Request) -> Response:
    """DELETE /projects/:id/variables/:key."""
    project, variable = await _find(edge, request)
    await edge.store.remove_variable(project.id, variable.key)
    return no_content()


_ROOT = "/api/v4/projects/{id}/variables"

ENDPOINTS = (
    Endpoint("POST", _ROOT, create, in_project(Level.MAINTAINER)),
    Endpoint("GET", _ROOT, list_all, in_project(Level.MAINTAINER)),
    Endpoint("GET", f"{_ROOT}/{{key}}", show, in_project(Level.MAINTAINER)),
    Endpoint("PUT", f"{_ROOT}/{{key}}", update, in_project(Level.MAINTAINER)),
    Endpoint("DELETE", f"{_ROOT}/{{key}}", remove, in_project(Level.MAINTAINER)),
)
