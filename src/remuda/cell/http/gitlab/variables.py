"""Variables of projects, groups and the whole cell in GitLab's form, and variables given to one pipeline or job;
checked by GitLab's rules. `remuda.cell.core.payload.variables` decides which value a job gets."""

import re
from collections.abc import Collection, Iterable
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.http.edge.access import ADMINISTRATOR, in_group, in_project
from remuda.cell.http.edge.bodies import with_given
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, not_found
from remuda.cell.http.edge.lookup import group_in_path, project_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.unsupported_fields import Unsupported
from remuda.cell.values import ProjectVariable
from remuda.cell.values.people import Level

MAX_VALUE = 10_000
MAX_GIVEN_VALUE = 100_000
"""Characters of a variable given to one pipeline, schedule or job. Linux allows little more in an environment."""
MAX_DESCRIPTION = 255
_NAME = re.compile(r"[A-Za-z0-9_]{1,255}", re.ASCII)
_SCOPE = re.compile(r"[A-Za-z0-9_/$*{}. -]{1,255}", re.ASCII)
_MASKABLE = re.compile(r"[A-Za-z0-9_+=/@:.~-]{8,}", re.ASCII)
"""For values that are expanded: characters that a shell would change cannot be masked in the log."""
_MASKABLE_RAW = re.compile(r"\S{8,}")
_OF_PROJECT, _OF_GROUP = "/api/v4/projects/{id}/variables", "/api/v4/groups/{id}/variables"
_OF_CELL = "/api/v4/admin/ci/variables"
_FILTER = {"filter[environment_scope]": str}
routes = Routes()


class GivenVariable(msgspec.Struct, kw_only=True):
    """A variable in a request to create a pipeline, start a job or change a schedule."""

    unsupported: ClassVar[Unsupported] = Unsupported(ignored={"raw": (False,)})
    key: str
    value: str | bool | int | float = ""
    variable_type: str = "env_var"

    def text(self) -> str:
        return self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()


class GivenVariableShape(Shape, kw_only=True):
    """A variable of one pipeline or schedule, as responses show it."""

    key: str
    value: str
    variable_type: Literal["env_var", "file"]
    raw: bool = False


def given_view(key: str, value: str, file_variables: Collection[str]) -> GivenVariableShape:
    return GivenVariableShape(key=key, value=value, variable_type="file" if key in file_variables else "env_var")


def check_variable(key: str, value: str) -> None:
    """Raise ApiError 400 if the name or the value is not valid for a variable that is given to a pipeline or job."""
    if not _NAME.fullmatch(key):
        raise bad_parameter("variables[key] is invalid: letters, digits and _ only, 1 to 255 of them")
    if len(value) > MAX_GIVEN_VALUE:
        raise bad_parameter(f"variables[value] of {key} is too long (maximum is {MAX_GIVEN_VALUE} characters)")
    if "\0" in value:
        raise bad_parameter(f"variables[value] of {key} is invalid: it has a NUL character")


def read_given(pairs: Iterable[GivenVariable]) -> tuple[dict[str, str], frozenset[str]]:
    """Values of given variables by name, and names of those of type `file`. Raises ApiError 400 if one is not valid."""
    variables: dict[str, str] = {}
    files: set[str] = set()
    for variable in pairs:
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
    return VariableShape.of(
        variable,
        variable_type="file" if variable.file else "env_var",
        value=None if variable.hidden else variable.value,
    )


class Given(msgspec.Struct, kw_only=True):
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


def apply_change(old: ProjectVariable, params: Given, *, masks_any_value: bool = False) -> ProjectVariable:
    """Return the variable with the fields that `params` contains. Raises ApiError 400 if the result is not valid.
    `masks_any_value`: the cell's setting."""
    if params.variable_type not in (None, "env_var", "file"):
        raise bad_parameter("variable_type does not have a valid value")
    if old.hidden and False in (params.masked, params.masked_and_hidden):
        raise bad_field("masked", "cannot be switched off for a hidden variable")
    new = with_given(
        old,
        value=params.value,
        file=None if params.variable_type is None else params.variable_type == "file",
        protected=params.protected,
        masked=params.masked,
        raw=params.raw,
        description=params.description,
        environment_scope=params.environment_scope,
    )
    if not _SCOPE.fullmatch(new.environment_scope):
        raise bad_field("environment_scope", "must have 1 to 255 characters: letters, digits, spaces and -_/${}.*")
    if not _NAME.fullmatch(new.key):
        raise bad_field("key", "can contain only letters, digits and '_', and must have 1 to 255 characters")
    if len(new.description or "") > MAX_DESCRIPTION:
        raise bad_field("description", f"is too long (maximum is {MAX_DESCRIPTION} characters)")
    if len(new.value) > MAX_VALUE:
        raise bad_field("value", f"is too long (maximum is {MAX_VALUE} characters)")
    if "\0" in new.value:
        raise bad_field("value", "must not contain a NUL character")
    if new.masked and not masks_any_value and not (_MASKABLE_RAW if new.raw else _MASKABLE).fullmatch(new.value):
        raise bad_field(
            "value",
            "is invalid: a masked value must be one line of at least 8 characters without blanks"
            + ("" if new.raw else ", and, unless raw is set, only letters, digits and _+=/@:.~-"),
        )
    return new


async def _load_variables(edge: Edge, request: Request) -> tuple[ProjectVariable, list[ProjectVariable]]:
    """Return a template for new variables, in which only the owner is set, and the owner's existing variables. The
    owner is the project, the group or the cell that the request's path names."""
    path = request.scope["path"]
    if path.startswith("/api/v4/projects/"):
        project = await project_in_path(edge, request)
        return ProjectVariable(project_id=project.id, key="", value=""), list(
            await edge.store.projects.list_variables(project.id)
        )
    group_id = (await group_in_path(edge, request)).id if path.startswith("/api/v4/groups/") else 0
    shared = await edge.store.projects.list_shared_variables([group_id])
    return ProjectVariable(group_id=group_id, key="", value=""), [
        variable for variable in shared if variable.group_id == group_id
    ]


def _check_scope(variable: ProjectVariable) -> None:
    is_of_cell = not variable.project_id and not variable.group_id
    if is_of_cell and variable.environment_scope != "*":
        raise bad_field("environment_scope", "of a variable of the whole cell must be *")


@routes.post(_OF_PROJECT, in_project(Level.MAINTAINER))
@routes.post(_OF_GROUP, in_group(Level.OWNER))
@routes.post(_OF_CELL, ADMINISTRATOR)
async def create(edge: Edge, request: Request, params: Given) -> VariableShape:
    """Create a variable."""
    blank, _ = await _load_variables(edge, request)
    missing = [name for name in ("key", "value") if getattr(params, name) is None]
    if missing:
        raise bad_parameter(", ".join(f"{name} is missing" for name in missing))
    is_hidden = bool(params.masked_and_hidden)
    new = replace(blank, key=params.key or "", hidden=is_hidden, masked=is_hidden)
    variable = apply_change(new, params, masks_any_value=edge.settings.masks_any_value)
    _check_scope(variable)
    if not await edge.store.projects.put_variable(variable, replace=False):
        raise bad_field("key", f"({variable.key}) has already been taken")
    return variable_view(variable)


async def _find(edge: Edge, request: Request, in_scope: str | None = None) -> ProjectVariable:
    """The variable whose name is in the path. If there are several with that name, the environment scope selects one:
    `in_scope` or, without it, that in the query. Raises ApiError 404 if none matches, 409 if several do."""
    _, variables = await _load_variables(edge, request)
    key = text_in_path(request, "key")
    scope = in_scope or request.query_params.get("filter[environment_scope]")
    matches = [
        variable for variable in variables if variable.key == key and scope in (None, variable.environment_scope)
    ]
    if not matches:
        raise not_found("Variable")
    if len(matches) > 1:
        message = "There are multiple variables with provided parameters. Please use 'filter[environment_scope]'"
        raise ApiError(409, {"message": message})
    return matches[0]


@routes.get(f"{_OF_PROJECT}/{{key}}", in_project(Level.MAINTAINER), query=_FILTER, also=(409,))
@routes.get(f"{_OF_GROUP}/{{key}}", in_group(Level.OWNER), query=_FILTER, also=(409,))
@routes.get(f"{_OF_CELL}/{{key}}", ADMINISTRATOR, query=_FILTER, also=(409,))
async def show(edge: Edge, variable: Annotated[ProjectVariable, _find]) -> VariableShape:
    """Show a variable."""
    return variable_view(variable)


@routes.get(_OF_PROJECT, in_project(Level.MAINTAINER))
@routes.get(_OF_GROUP, in_group(Level.OWNER))
@routes.get(_OF_CELL, ADMINISTRATOR)
async def list_all(edge: Edge, request: Request) -> list[VariableShape]:
    """List the variables of a project, a group or the cell."""
    _, variables = await _load_variables(edge, request)
    return [variable_view(variable) for variable in variables]


@routes.put(f"{_OF_PROJECT}/{{key}}", in_project(Level.MAINTAINER), query=_FILTER, also=(409,))
@routes.put(f"{_OF_GROUP}/{{key}}", in_group(Level.OWNER), query=_FILTER, also=(409,))
@routes.put(f"{_OF_CELL}/{{key}}", ADMINISTRATOR, query=_FILTER, also=(409,))
async def update(edge: Edge, request: Request, params: Given) -> VariableShape:
    """Change a variable."""
    variable = await _find(edge, request, (params.filter or {}).get("environment_scope"))
    changed = apply_change(variable, params, masks_any_value=edge.settings.masks_any_value)
    _check_scope(changed)
    is_moved = changed.environment_scope != variable.environment_scope
    # The scope is part of the key. The new row is written first: a crash in between leaves both, never none.
    if not await edge.store.projects.put_variable(changed, replace=not is_moved):
        raise bad_field("key", f"({changed.key}) has already been taken") if is_moved else not_found("Variable")
    if is_moved:
        await _remove(edge, variable)
    return variable_view(changed)


@routes.delete(f"{_OF_PROJECT}/{{key}}", in_project(Level.MAINTAINER), query=_FILTER, also=(409,))
@routes.delete(f"{_OF_GROUP}/{{key}}", in_group(Level.OWNER), query=_FILTER, also=(409,))
@routes.delete(f"{_OF_CELL}/{{key}}", ADMINISTRATOR, query=_FILTER, also=(409,))
async def remove(edge: Edge, variable: Annotated[ProjectVariable, _find]) -> None:
    """Remove a variable."""
    await _remove(edge, variable)


async def _remove(edge: Edge, variable: ProjectVariable) -> None:
    await edge.store.projects.remove_variable(
        variable.project_id, variable.key, variable.environment_scope, group_id=variable.group_id
    )
