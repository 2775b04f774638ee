"""The protected branches of a project in GitLab's form: who may push to them and start their pipelines, and whether
force pushes are allowed.

The default branch is protected for maintainers without a stored rule. The first change of anything but
`allow_force_push` stores a rule for it; removing its protection is stored in the project. There are no merge requests
and no code owners here: `merge_access_levels` decides only who may start pipelines."""

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace
from starlette.requests import Request

from remuda.cell.core.access.protected_refs import (
    HEADS,
    MAX_RULES,
    MAX_STARS,
    Pusher,
    branch_rules,
    can_unprotect,
    default_rule,
)
from remuda.cell.git.commits import is_branch_name
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller, caller_of
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError, bad_field, bad_parameter, bad_request, forbidden, not_found
from remuda.cell.http.edge.lookup import project_in_path, text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.projects.refs import default_branch
from remuda.cell.values import Project
from remuda.cell.values.people import Level
from remuda.cell.values.projects import ProtectedRef, RefGrant

LEVELS = {
    0: "No one",
    int(Level.DEVELOPER): "Developers + Maintainers",
    int(Level.MAINTAINER): "Maintainers",
    60: "Administrators",
}
MAX_GRANTS = 50
"""How many entries a list of access levels can have."""
_MAX_NAME = 255
_ROOT = "/api/v4/projects/{id}/protected_branches"
_ACCESS = in_project(Level.MAINTAINER)
routes = Routes()


class GrantChange(msgspec.Struct, kw_only=True):
    """An entry of `allowed_to_push` and so on. With `id` it changes an existing entry, with `_destroy` removes it."""

    access_level: int | None = None
    user_id: int | None = None
    group_id: int | None = None
    deploy_key_id: int | None = None
    id: int | None = None
    destroy: bool = msgspec.field(name="_destroy", default=False)


class NewProtectedBranch(msgspec.Struct, kw_only=True):
    name: str
    push_access_level: int | None = None
    merge_access_level: int | None = None
    unprotect_access_level: int | None = None
    allow_force_push: bool = False
    code_owner_approval_required: bool = False
    allowed_to_push: list[GrantChange] = []
    allowed_to_merge: list[GrantChange] = []
    allowed_to_unprotect: list[GrantChange] = []


class ProtectedBranchChange(msgspec.Struct, kw_only=True):
    allow_force_push: bool | None = None
    code_owner_approval_required: bool = False
    allowed_to_push: list[GrantChange] = []
    allowed_to_merge: list[GrantChange] = []
    allowed_to_unprotect: list[GrantChange] = []


class AccessLevelShape(Shape, kw_only=True):
    id: int
    access_level: int | None
    access_level_description: str
    user_id: int | None
    group_id: None = None
    deploy_key_id: None = None


class ProtectedBranchShape(Shape, kw_only=True):
    id: int
    name: str
    push_access_levels: list[AccessLevelShape]
    merge_access_levels: list[AccessLevelShape]
    unprotect_access_levels: list[AccessLevelShape]
    allow_force_push: bool
    code_owner_approval_required: bool = False
    inherited: bool = False


def levels_view(grants: Sequence[RefGrant]) -> list[AccessLevelShape]:
    return [
        AccessLevelShape(
            id=grant.id,
            # GitLab, too, shows the level 40 for a user who is admitted by name.
            access_level=Level.MAINTAINER if grant.level is None else grant.level,
            access_level_description=f"User {grant.user_id}" if grant.level is None else LEVELS.get(grant.level, ""),
            user_id=grant.user_id,
        )
        for grant in grants
    ]


def _view(row: ProtectedRef) -> ProtectedBranchShape:
    return ProtectedBranchShape(
        id=row.id,
        name=row.name,
        push_access_levels=levels_view(row.push),
        merge_access_levels=levels_view(row.merge),
        unprotect_access_levels=levels_view(row.unprotect),
        allow_force_push=row.allow_force_push,
    )


def check_rule_name(name: str) -> None:
    """Raise ApiError 400 unless `name` is a branch or tag name, in which `*` may stand for any characters."""
    if len(name) > _MAX_NAME or name.count("*") > MAX_STARS or not is_branch_name(name.replace("*", "x")):
        raise bad_field("name", f"must be the name of a branch or tag, with at most {MAX_STARS} wildcards (*)")


def next_id(project: Project) -> int:
    """An id that no rule and no grant of the project has."""
    rows = [*project.protected_branches, *project.protected_tags]
    grants = [grant for row in rows for grant in (*row.push, *row.merge, *row.unprotect)]
    return max([0, *(row.id for row in rows), *(grant.id for grant in grants)]) + 1


async def check_grants(edge: Edge, project: Project, changes: Sequence[GrantChange]) -> None:
    """Raise ApiError 400 or 404 if an entry names no level or user; groups and deploy keys are not supported."""
    for change in changes:
        if change.group_id is not None or change.deploy_key_id is not None:
            raise bad_parameter("group_id and deploy_key_id are not supported here; use access_level or user_id")
        if change.access_level is not None and change.access_level not in LEVELS:
            raise bad_parameter("access_level does not have a valid value: it is 0, 30, 40 or 60")
        if change.user_id is not None:
            user = await edge.store.people.load_user(change.user_id)
            if user is None or user.organization_id != project.organization_id:
                raise not_found("User")
        if change.id is None and (change.access_level is None) == (change.user_id is None):
            raise bad_parameter("exactly one of access_level and user_id is needed")


def apply_grants(grants: Sequence[RefGrant], changes: Sequence[GrantChange], first_id: int) -> tuple[RefGrant, ...]:
    """The grants after the changes. New ones get ids from `first_id` on. Raises ApiError 404 for an unknown id, 400 for
    too many."""
    rows = {grant.id: grant for grant in grants}
    for number, change in enumerate(changes):
        if change.id is not None and change.id not in rows:
            raise not_found("Access level")
        if change.destroy and change.id is not None:
            del rows[change.id]
            continue
        key = first_id + number if change.id is None else change.id
        if change.id is None or change.access_level is not None or change.user_id is not None:
            rows[key] = RefGrant(id=key, level=change.access_level, user_id=change.user_id)
    if len(rows) > MAX_GRANTS:
        raise bad_request(f"at most {MAX_GRANTS} entries are possible")
    return tuple(rows.values())


def first_grants(level: int | None, changes: Sequence[GrantChange], first_id: int) -> tuple[RefGrant, ...]:
    """The grants of a new rule: `level` (maintainers, if nothing is given) and the given entries."""
    given = list(changes)
    if level is not None or not given:
        given.insert(0, GrantChange(access_level=Level.MAINTAINER if level is None else level))
    return apply_grants((), given, first_id)


def check_levels(*levels: int | None) -> None:
    for level in levels:
        if level is not None and level not in LEVELS:
            raise bad_parameter("access level does not have a valid value: it is 0, 30, 40 or 60")


def _check_code_owners(required: bool) -> None:
    if required:
        raise bad_request(
            "code_owner_approval_required: there are no merge requests and no code owners here, so nothing would "
            "enforce it; leave it out or set it to false"
        )


async def _find(edge: Edge, request: Request) -> ProtectedRef:
    """The rule whose name is in the path. Raises ApiError 404 if there is none."""
    project = await project_in_path(edge, request)
    for row in branch_rules(project, default_branch(edge.projects.repos, project)):
        if row.name == text_in_path(request, "name"):
            return row
    raise not_found("Protected branch")


@routes.get(_ROOT, _ACCESS, query={"search": str})
async def list_all(edge: Edge, request: Request, project: Project) -> list[ProtectedBranchShape]:
    """List the rules for protected branches, that of the default branch first."""
    search = request.query_params.get("search", "")
    rows = branch_rules(project, default_branch(edge.projects.repos, project))
    return [_view(row) for row in rows if search in row.name]


@routes.get(f"{_ROOT}/{{name}}", _ACCESS)
async def show(edge: Edge, row: Annotated[ProtectedRef, _find]) -> ProtectedBranchShape:
    """Show the rule with this name, which may contain wildcards."""
    return _view(row)


@routes.post(_ROOT, _ACCESS, also=(409,))
async def create(edge: Edge, project: Project, params: NewProtectedBranch) -> ProtectedBranchShape:
    """Protect a branch, or all branches that a name with wildcards matches."""
    check_rule_name(params.name)
    _check_code_owners(params.code_owner_approval_required)
    check_levels(params.push_access_level, params.merge_access_level, params.unprotect_access_level)
    await check_grants(edge, project, [*params.allowed_to_push, *params.allowed_to_merge, *params.allowed_to_unprotect])
    # As in GitLab, the default branch counts as protected from its first push on.
    default_ref = await edge.projects.find_default_ref(project)

    def add(row: Project) -> Project:
        is_default = default_ref == HEADS + params.name and row.default_branch_protected
        if is_default or any(rule.name == params.name for rule in row.protected_branches):
            raise ApiError(409, {"message": f"Protected branch '{params.name}' already exists"})
        if len(row.protected_branches) >= MAX_RULES:
            raise bad_request(f"there are {MAX_RULES} protected branches already; use wildcards")
        number = next_id(row)
        new = ProtectedRef(
            id=number,
            name=params.name,
            push=first_grants(params.push_access_level, params.allowed_to_push, number + 1),
            merge=first_grants(params.merge_access_level, params.allowed_to_merge, number + MAX_GRANTS + 1),
            unprotect=first_grants(
                params.unprotect_access_level, params.allowed_to_unprotect, number + 2 * MAX_GRANTS + 1
            )
            if params.unprotect_access_level is not None or params.allowed_to_unprotect
            else (),
            allow_force_push=params.allow_force_push,
        )
        return replace(row, protected_branches=(*row.protected_branches, new))

    return _view((await change_rules(edge, project, add)).protected_branches[-1])


async def change_rules(edge: Edge, project: Project, decide: Callable[[Project], Project]) -> Project:
    """Change the rules of a project: `decide` gets the stored project. Raises ApiError 404 if it is gone."""
    changed = await edge.store.projects.change_project(project.id, decide)
    if changed is None:
        raise not_found("Project")
    return changed


def _check_unprotect(caller: Caller, project: Project, row: ProtectedRef) -> None:
    if not can_unprotect(row, Pusher(caller.user.id, caller.level_in(project) or 0)):
        raise forbidden("unprotect_access_levels of this rule do not admit you")


@routes.patch(f"{_ROOT}/{{name}}", _ACCESS)
async def update(
    edge: Edge, request: Request, project: Project, found: Annotated[ProtectedRef, _find], params: ProtectedBranchChange
) -> ProtectedBranchShape:
    """Change who may push to a protected branch, and whether force pushes are allowed."""
    _check_unprotect(caller_of(request), project, found)
    _check_code_owners(params.code_owner_approval_required)
    lists = {"push": params.allowed_to_push, "merge": params.allowed_to_merge, "unprotect": params.allowed_to_unprotect}
    await check_grants(edge, project, [change for changes in lists.values() for change in changes])

    def change(row: Project) -> Project:
        stored = next((rule for rule in row.protected_branches if rule.name == found.name), None)
        if stored is None and not any(lists.values()):
            return replace(
                row,
                allow_force_push=row.allow_force_push if params.allow_force_push is None else params.allow_force_push,
            )
        number = next_id(row)
        rule = stored or replace(default_rule(row, found.name), id=number)
        for place, (name, changes) in enumerate(lists.items()):
            first_id = number + 1 + place * MAX_GRANTS
            rule = replace(rule, **{name: apply_grants(getattr(rule, name), changes, first_id)})
        if params.allow_force_push is not None:
            rule = replace(rule, allow_force_push=params.allow_force_push)
        others = tuple(other for other in row.protected_branches if other.name != found.name)
        return replace(row, protected_branches=(*others, rule))

    changed = await change_rules(edge, project, change)
    rows = branch_rules(changed, default_branch(edge.projects.repos, changed))
    return _view(next((row for row in rows if row.name == found.name), found))


@routes.delete(f"{_ROOT}/{{name}}", _ACCESS)
async def remove(edge: Edge, request: Request, project: Project, found: Annotated[ProtectedRef, _find]) -> None:
    """Remove the protection of a branch."""
    _check_unprotect(caller_of(request), project, found)
    is_default = found.name == default_branch(edge.projects.repos, project)

    def change(row: Project) -> Project:
        others = tuple(other for other in row.protected_branches if other.name != found.name)
        return replace(
            row,
            protected_branches=others,
            default_branch_protected=row.default_branch_protected and not is_default,
        )

    await change_rules(edge, project, change)
