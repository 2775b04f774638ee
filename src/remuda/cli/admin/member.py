"""Members of projects and groups, for `remuda project members` and `remuda group members`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import CellAddress
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.admin.place import ROLES, Place, Role, find_user, role_name
from remuda.cli.render.listing import Columns, print_change, print_list
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MemberChange:
    """The options of `members` that change a member."""

    add: Annotated[
        str, Parameter(help="Add this user (name or number), or change the role of this member.", show_default=False)
    ] = ""
    remove: Annotated[str, Parameter(help="Remove this member.", show_default=False)] = ""
    role: Annotated[Role, Parameter(help="Role for --add.")] = "developer"
    expires: Annotated[
        str, Parameter(name=("--expires", "-e"), help="Last day of the membership, YYYY-MM-DD.", show_default=False)
    ] = ""
    yes: Yes = False


NO_CHANGE = MemberChange()


def list_or_change(place: Place, change: MemberChange, *, inherited: bool, cell: CellAddress, output: str) -> None:
    """List the members of a place, or add, change or remove one."""
    if change.add and change.remove:
        raise BadInputError("--add and --remove contradict each other; give one of them")
    if change.remove:
        confirm(f"remove {change.remove} from {place}", yes=change.yes)
        cell.ask(lambda client: _remove(client, place, change.remove))
        print(f"{change.remove} is no member of {place} any more")
    elif change.add:
        member = cell.ask(lambda client: _put(client, place, change))
        print_change(member, f"{member['username']} is {role_name(member['access_level'])} of {place}", output)
    else:
        path = place.path("members", *(["all"] if inherited else []))
        columns: Columns = {
            "number": "id",
            "user": "username",
            "name": "name",
            "role": lambda member: role_name(member["access_level"]),
            "state": "state",
            "expires": "expires_at",
        }
        nothing = f"{place} has no members of its own; --all lists those of the groups above, too"
        print_list(cell.ask(lambda client: client.pages(path)), columns, output, nothing=nothing)


async def _put(client: "UserClient", place: Place, change: MemberChange) -> Mapping[str, Any]:
    """Add a member, or change the role of one. Returns the member."""
    from remuda.wire.user_client import RefusedError

    user = await find_user(client, change.add)
    body: dict[str, Any] = {"access_level": ROLES[change.role]}
    if change.expires:
        body["expires_at"] = change.expires
    try:
        added: dict[str, Any] = await client.call("POST", place.path("members"), {"user_id": user["id"], **body})
    except RefusedError as error:
        if error.status != 409:
            raise
        added = await client.call("PUT", place.path("members", user["id"]), body)
    return added


async def _remove(client: "UserClient", place: Place, name: str) -> None:
    user = await find_user(client, name)
    await client.call("DELETE", place.path("members", user["id"]))
