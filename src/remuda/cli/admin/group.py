"""`remuda group`: lists, creates and changes the groups of a cell."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, below
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.admin.member import NO_CHANGE, MemberChange, list_or_change
from remuda.cli.admin.place import Place
from remuda.cli.admin.project import Visibility
from remuda.cli.options import Output
from remuda.cli.render.listing import Columns, at, print_change, print_facts, print_json, print_list
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

GroupName = Annotated[str, Parameter(help="Path or number of the group.")]
Description = Annotated[
    str | None, Parameter(name=("--description", "-d"), help="What it is about.", show_default=False)
]


def list_groups(*, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """List the groups that you may see.

    Try:

        remuda group list
        remuda group list --output json
    """
    groups = cell.ask(lambda client: client.pages("/api/v4/groups"))
    columns: Columns = {
        "group": "full_path",
        "number": "id",
        "name": "name",
        "visibility": "visibility",
        "created": at("created_at"),
        "description": "description",
    }
    print_list(groups, columns, output, nothing="there are no groups; create one with `remuda group create PATH`")


def show(group: GroupName, /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Show a group with its subgroups and projects.

    Try:

        remuda group show acme
        remuda group show acme --output json
    """

    async def ask(client: "UserClient") -> dict[str, Any]:
        found = await client.call("GET", below("groups", group))
        subgroups = await client.pages(below("groups", found["id"], "subgroups"))
        projects = await client.pages(below("groups", found["id"], "projects"))
        return {**found, "subgroups": subgroups, "projects": projects}

    found = cell.ask(ask)
    if output == "json":
        print_json(found)
        return
    facts: Columns = {
        "number": "id",
        "name": "name",
        "description": "description",
        "visibility": "visibility",
        "created": at("created_at"),
        "subgroups": lambda group: [each["full_path"] for each in group["subgroups"]],
        "projects": lambda group: [each["path_with_namespace"] for each in group["projects"]],
    }
    print_facts(f"group {found['full_path']}", found, facts, output)


def create(
    path: Annotated[str, Parameter(help="Path of the group; acme/web is a group in the group acme.")],
    /,
    *,
    name: Annotated[str, Parameter(help="Its name [default: the last part of the path].", show_default=False)] = "",
    description: Description = None,
    visibility: Visibility = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Create a group, of which you become the owner.

    Try:

        remuda group create acme
        remuda group create acme/web --description "Web sites" --visibility internal
    """
    above, _, last = path.rpartition("/")

    async def ask(client: "UserClient") -> dict[str, Any]:
        body: dict[str, Any] = {"path": last, "name": name or last, **_body(description, visibility)}
        if above:
            body["parent_id"] = (await client.call("GET", below("groups", above)))["id"]
        created: dict[str, Any] = await client.call("POST", "/api/v4/groups", body)
        return created

    new = cell.ask(ask)
    print_change(new, f"group {new['full_path']} is created", output)


def set_group(
    group: GroupName,
    /,
    *,
    name: Annotated[str, Parameter(help="Its new name.", show_default=False)] = "",
    description: Description = None,
    visibility: Visibility = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Change a group.

    Try:

        remuda group set acme --description "Everything of Acme"
    """
    body = _body(description, visibility) | ({"name": name} if name else {})
    if not body:
        raise BadInputError("nothing to change: give --name, --description or --visibility")
    changed = cell.ask(lambda client: client.call("PUT", below("groups", group), body))
    print_change(changed, f"group {changed['full_path']} is changed", output)


def delete(group: GroupName, /, *, yes: Yes = False, cell: CellAddress = USUAL_CELL) -> None:
    """Delete a group with its subgroups, projects and runners, for ever.

    Try:

        remuda group delete acme
        remuda group delete acme --yes
    """
    found = cell.ask(lambda client: client.call("GET", below("groups", group)))
    confirm(f"delete the group {found['full_path']} with all its subgroups and projects, for ever", yes=yes)
    cell.ask(lambda client: client.call("DELETE", below("groups", found["id"])))
    print(f"group {found['full_path']} is deleted")


def members(
    group: GroupName,
    /,
    *,
    change: MemberChange = NO_CHANGE,
    inherited: Annotated[
        bool, Parameter(name=("--all", "-a"), negative=(), help="List the members of the groups above, too.")
    ] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List the members of a group, or add, change or remove one.

    Try:

        remuda group members acme
        remuda group members acme --add anna --role owner
        remuda group members acme --remove anna
    """
    list_or_change(Place(group=group), change, inherited=inherited, cell=cell, output=output)


def _body(description: str | None, visibility: str | None) -> dict[str, Any]:
    body = {"description": description, "visibility": visibility}
    return {name: value for name, value in body.items() if value is not None}
