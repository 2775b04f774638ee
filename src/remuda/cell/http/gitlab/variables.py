"""Variables of projects, groups and the whole cell as GitLab's API has them, and those that one call gives.

Decided here: which names, values and environment scopes a variable may have, and which may be masked, by GitLab's
rules. Whose value a job gets is decided in `remuda.cell.core.payload.variables`.
"""

import re
from collections.abc import Collection, Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.access import ADMINISTRATOR, Access, in_group, in_project
from remuda.cell.http.edge.bodies import parameters
from remuda.cell.http.edge.endpoints import Edge, Endpoint, Shape
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, json_answer, no_content, not_found
from remuda.cell.http.edge.lookup import group_in_path, project_in_path, text_in_path
from remuda.cell.http.edge.paging import slice_answer
from remuda.cell.values import ProjectVariable
from remuda.cell.values.people import Level

MAX_VALUE = 10_000
MAX_GIVEN_VALUE = 100_000
"""Of a variable given to one pipeline, schedule or job: an environment carries little more."""
MAX_DESCRIPTION = 255
_NAME = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)
_SCOPE = re.compile(r"[A-Za-z0-9_/$*{}. -]{1,255}", re.ASCII)
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


class GivenVariableShape(Shape, kw_only=True):
    """A variable of one pipeline or schedule."""

    key: str
    value: str
    variable_type: Literal["env_var", "file"]
    raw: bool = False


def given_view(key: str, value: str, file_variables: Collection[str]) -> GivenVariableShape:
    return GivenVariableShape(key=key, value=value, variable_type="file" if key in file_variables else "env_var")


def check_variable(key: str, value: str) -> None:
    """400 when no job could have such a variable."""
    if not _NAME.fullmatch(key):
        raise bad_parameter("variables[key] is invalid: letters, digits and _ only, 1 to 255 of them")
    if len(value) > MAX_GIVEN_VALUE:
        raise bad_parameter(f"variables[value] of {key} is too long (maximum is {MAX_GIVEN_VALUE} characters)")
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


class VariableShape(Shape, kw_only=True):
    variable_type: Literal["env_var", "file"]
    key: str
    value: str | None
    hidden: bool
    protected: bool
    masked: bool
    raw: bool
    environment_scope: str
    description: str | None


def variable_view(variable: ProjectVariable) -> VariableShape:
    return VariableShape(
        variable_type="file" if variable.file else "env_var",
        key=variable.key,
        value=None if variable.hidden else variable.value,
        hidden=variable.hidden,
        protected=variable.protected,
        masked=variable.masked,
        raw=variable.raw,
        environment_scope=variable.environment_scope,
        description=variable.description,
    )


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
    masked_and_hidden: bool | None = None
    filter: dict[str, str] | None = None


def apply_change(old: ProjectVariable, given: Given) -> ProjectVariable:
    """The variable with what was given; 400 when it cannot be so."""
    if given.variable_type not in (None, "env_var", "file"):
        raise bad_parameter("variable_type does not have a valid value")
    if old.hidden and False in (given.masked, given.masked_and_hidden):
        raise bad_field("masked", "stays: the variable is hidden")
    new = replace(
        old,
        value=old.value if given.value is None else given.value,
        file=old.file if given.variable_type is None else given.variable_type == "file",
        protected=old.protected if given.protected is None else given.protected,
        masked=old.masked if given.masked is None else given.masked,
        raw=old.raw if given.raw is None else given.raw,
        description=old.description if given.description is None else given.description,
        environment_scope=old.environment_scope if given.environment_scope is None else given.environment_scope,
    )
    if not _SCOPE.fullmatch(new.environment_scope):
        raise bad_field("environment_scope", "has 1 to 255 letters, digits, blanks and -_/${}.*")
    if not _NAME.fullmatch(new.key):
        raise bad_field("key", "can contain only letters, digits and '_', and has 1 to 255 characters")
    if len(new.description or "") > MAX_DESCRIPTION:
        raise bad_field("description", f"is too long (maximum is {MAX_DESCRIPTION} characters)")
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


async def _load_variables(edge: Edge, request: Request) -> tuple[ProjectVariable, list[ProjectVariable]]:
    """What a new variable begins with, and all variables of the project or group in the path, or of the cell."""
    path = request.scope["path"]
    if path.startswith("/api/v4/projects/"):
        project = await project_in_path(edge, request)
        return ProjectVariable(project_id=project.id, key="", value=""), list(
            await edge.store.projects.list_variables(project.id)
        )
    group_id = (await group_in_path(edge, request)).id if path.startswith("/api/v4/groups/") else 0
    shared = await edge.store.projects.list_shared_variables([group_id])
    return ProjectVariable(group_id=group_id, key="", value=""), [one for one in shared if one.group_id == group_id]


def _check_scope(variable: ProjectVariable) -> None:
    is_of_all = not variable.project_id and not variable.group_id
    if is_of_all and variable.environment_scope != "*":
        raise bad_field("environment_scope", "of a variable for the whole cell is *")


async def create(edge: Edge, request: Request) -> Response:
    """POST .../variables."""
    blank, _ = await _load_variables(edge, request)
    given = await parameters(request, Given, limit_bytes=edge.settings.body_limit_bytes)
    missing = [name for name in ("key", "value") if getattr(given, name) is None]
    if missing:
        raise bad_parameter(", ".join(f"{name} is missing" for name in missing))
    is_hidden = bool(given.masked_and_hidden)
    variable = apply_change(replace(blank, key=given.key or "", hidden=is_hidden, masked=is_hidden), given)
    _check_scope(variable)
    if not await edge.store.projects.put_variable(variable, replace=False):
        raise bad_field("key", f"({variable.key}) has already been taken")
    return json_answer(variable_view(variable), 201)


async def _find(edge: Edge, request: Request, wanted_scope: str | None = None) -> ProjectVariable:
    """The variable in the path; where there are several of the name, `filter[environment_scope]` says which."""
    _, known = await _load_variables(edge, request)
    key = text_in_path(request, "key")
    scope = wanted_scope or request.query_params.get("filter[environment_scope]")
    found = [one for one in known if one.key == key and scope in (None, one.environment_scope)]
    if not found:
        raise not_found("Variable")
    if len(found) > 1:
        words = "There are multiple variables with provided parameters. Please use 'filter[environment_scope]'"
        raise ApiError(409, {"message": words})
    return found[0]


async def show(edge: Edge, request: Request) -> Response:
    """GET .../variables/:key."""
    return json_answer(variable_view(await _find(edge, request)))


async def list_all(edge: Edge, request: Request) -> Response:
    """GET .../variables."""
    _, known = await _load_variables(edge, request)
    return slice_answer(request, [variable_view(one) for one in known])


async def update(edge: Edge, request: Request) -> Response:
    """PUT .../variables/:key."""
    given = await parameters(request, Given, limit_bytes=edge.settings.body_limit_bytes)
    variable = await _find(edge, request, (given.filter or {}).get("environment_scope"))
    changed = apply_change(variable, given)
    _check_scope(changed)
    is_moved = changed.environment_scope != variable.environment_scope
    # A scope is part of the name. The new one comes first: a death in between leaves both, never none.
    if not await edge.store.projects.put_variable(changed, replace=not is_moved):
        raise bad_field("key", f"({changed.key}) has already been taken") if is_moved else not_found("Variable")
    if is_moved:
        await _remove(edge, variable)
    return json_answer(variable_view(changed))


async def remove(edge: Edge, request: Request) -> Response:
    """DELETE .../variables/:key."""
    await _remove(edge, await _find(edge, request))
    return no_content()


async def _remove(edge: Edge, variable: ProjectVariable) -> None:
    await edge.store.projects.remove_variable(
        variable.project_id, variable.key, variable.environment_scope, group_id=variable.group_id
    )


_FILTER = {"filter[environment_scope]": str}


def _endpoints(root: str, access: Access) -> tuple[Endpoint, ...]:
    return (
        Endpoint("POST", root, create, access, takes=Given, gives=VariableShape),
        Endpoint("GET", root, list_all, access, gives=list[VariableShape]),
        Endpoint("GET", f"{root}/{{key}}", show, access, query=_FILTER, gives=VariableShape, also=(409,)),
        Endpoint(
            "PUT", f"{root}/{{key}}", update, access, takes=Given, query=_FILTER, gives=VariableShape, also=(409,)
        ),
        Endpoint("DELETE", f"{root}/{{key}}", remove, access, query=_FILTER, also=(409,)),
    )


ENDPOINTS = (
    *_endpoints("/api/v4/projects/{id}/variables", in_project(Level.MAINTAINER)),
    *_endpoints("/api/v4/groups/{id}/variables", in_group(Level.OWNER)),
    *_endpoints("/api/v4/admin/ci/variables", ADMINISTRATOR),
)
