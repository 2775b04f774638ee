"""`remuda project`: lists, creates and changes the projects of a cell."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, in_project
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.admin.member import NO_CHANGE, MemberChange, list_or_change
from remuda.cli.admin.place import Place
from remuda.cli.options import Limit, Output, check_limit
from remuda.cli.render.listing import Columns, at, print_change, print_facts, print_list
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

ProjectName = Annotated[
    str,
    Parameter(
        help="Path or number of the project [default: that of the current folder, if a git remote points to the cell].",
        show_default=False,
    ),
]
Visibility = Annotated[
    Literal["private", "internal", "public"] | None, Parameter(help="Who may see it.", show_default=False)
]


def list_projects(
    *,
    search: Annotated[str, Parameter(help="List only projects with this text in their path.", show_default=False)] = "",
    member: Annotated[bool, Parameter(negative=(), help="List only projects of which you are a member.")] = False,
    limit: Limit = 100,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List the projects that you may see.

    Try:

        remuda project list
        remuda project list --search shop --output json
    """
    check_limit(limit)
    query = ({"search": search} if search else {}) | ({"membership": "true"} if member else {})
    projects = cell.ask(lambda client: client.pages("/api/v4/projects", limit=limit, **query))
    columns: Columns = {
        "project": "path_with_namespace",
        "number": "id",
        "visibility": "visibility",
        "branch": "default_branch",
        "state": lambda project: "archived" if project["archived"] else "",
        "last change": at("last_activity_at"),
        "description": "description",
    }
    print_list(projects, columns, output, nothing="there are no such projects; `remuda project create PATH` makes one")


def show(project: ProjectName = "", /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Show a project: its address for git, and its settings.

    Try:

        remuda project show
        remuda project show root/shop --output json
    """
    place = cell.project(project)
    found = cell.ask(lambda client: client.call("GET", in_project(place)))
    facts: Columns = {
        "number": "id",
        "description": "description",
        "git": "http_url_to_repo",
        "branch": "default_branch",
        "visibility": "visibility",
        "archived": "archived",
        "pipeline file": "ci_config_path",
        "timeout": lambda project: f"{project['build_timeout']} s" if project["build_timeout"] else "",
        "topics": "topics",
        "created": at("created_at"),
        "last change": at("last_activity_at"),
    }
    print_facts(f"project {found['path_with_namespace']}", found, facts, output)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of a project. None: unchanged, or the default for a new project."""

    description: Annotated[
        str | None, Parameter(name=("--description", "-d"), help="What it is about.", show_default=False)
    ] = None
    visibility: Visibility = None
    default_branch: Annotated[str | None, Parameter(help="The default branch.", show_default=False)] = None
    ci_config_path: Annotated[
        str | None, Parameter(name="--pipeline-file", help="Path of the pipeline file.", show_default=False)
    ] = None
    build_timeout: Annotated[
        int | None, Parameter(name="--timeout", help="Longest time of a job in seconds.", show_default=False)
    ] = None
    lfs_enabled: Annotated[bool | None, Parameter(name="--lfs", help="Git LFS.", show_default=False)] = None
    shared_runners_enabled: Annotated[
        bool | None,
        Parameter(name="--instance-runners", help="Let runners of the whole cell take its jobs.", show_default=False),
    ] = None
    group_runners_enabled: Annotated[
        bool | None,
        Parameter(name="--group-runners", help="Let runners of its groups take its jobs.", show_default=False),
    ] = None

    def body(self) -> dict[str, Any]:
        names = self.__dataclass_fields__
        return {name: value for name in names if (value := getattr(self, name)) is not None}


_UNCHANGED = Settings()


def create(
    path: Annotated[str, Parameter(help="Path with the namespace (acme/shop), or a name in your own namespace.")],
    /,
    *,
    settings: Settings = _UNCHANGED,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Create a project, and print its address for git.

    Try:

        remuda project create shop
        remuda project create acme/shop --description "The web shop" --visibility internal
    """
    body = {"path": path, "name": path.rpartition("/")[2], **settings.body()}
    new = cell.ask(lambda client: client.call("POST", "/api/v4/projects", body))
    words = f"project {new['path_with_namespace']} is created; push to it: git push {new['http_url_to_repo']} HEAD"
    print_change(new, words, output)


def set_project(
    project: ProjectName = "",
    /,
    *,
    name: Annotated[str, Parameter(help="Its new name.", show_default=False)] = "",
    path: Annotated[str, Parameter(help="Its new path inside its namespace.", show_default=False)] = "",
    settings: Settings = _UNCHANGED,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Change settings of a project.

    Try:

        remuda project set root/shop --default-branch main --timeout 7200
        remuda project set --pipeline-file ci/pipeline.yml
    """
    place = cell.project(project)
    body = settings.body() | ({"name": name} if name else {}) | ({"path": path} if path else {})
    if not body:
        raise BadInputError("nothing to change: give --description, --default-branch or another option")
    changed = cell.ask(lambda client: client.call("PUT", in_project(place), body))
    print_change(changed, f"project {changed['path_with_namespace']} is changed", output)


def archive(project: ProjectName = "", /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Archive a project: it can be read, but nothing in it changes, and no pipeline starts.

    Try:

        remuda project archive root/shop
    """
    _archive(cell, project, "archive", "is archived; `remuda project unarchive` ends that", output)


def unarchive(project: ProjectName = "", /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Make an archived project work again.

    Try:

        remuda project unarchive root/shop
    """
    _archive(cell, project, "unarchive", "is not archived any more", output)


def delete(
    project: Annotated[str, Parameter(help="Path or number of the project.")],
    /,
    *,
    yes: Yes = False,
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Delete a project with its repository, pipelines, artifacts and variables, for ever.

    Try:

        remuda project delete root/shop
        remuda project delete root/shop --yes
    """
    found = cell.ask(lambda client: client.call("GET", in_project(project)))
    path = found["path_with_namespace"]
    confirm(f"delete the project {path} with its repository and everything in it, for ever", yes=yes)
    cell.ask(lambda client: client.call("DELETE", in_project(found["id"])))
    print(f"project {path} is deleted")


def members(
    project: ProjectName = "",
    /,
    *,
    change: MemberChange = NO_CHANGE,
    inherited: Annotated[
        bool, Parameter(name=("--all", "-a"), negative=(), help="List the members of the groups above, too.")
    ] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List the members of a project, or add, change or remove one.

    Try:

        remuda project members root/shop
        remuda project members root/shop --add anna --role maintainer
        remuda project members root/shop --remove anna --yes
    """
    list_or_change(Place(project=cell.project(project)), change, inherited=inherited, cell=cell, output=output)


def _archive(cell: CellAddress, project: str, action: str, words: str, output: str) -> None:
    place = cell.project(project)

    async def ask(client: "UserClient") -> dict[str, Any]:
        changed: dict[str, Any] = await client.call("POST", in_project(place, action))
        return changed

    changed = cell.ask(ask)
    print_change(changed, f"project {changed['path_with_namespace']} {words}", output)
