"""`remuda user`: the users of a cell. Most commands are for administrators."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, below
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.admin.place import find_user
from remuda.cli.options import Output
from remuda.cli.render.listing import Columns, at, print_change, print_facts, print_list
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

UserName = Annotated[str, Parameter(help="Name or number of the user.")]


def list_users(
    *,
    search: Annotated[str, Parameter(help="List only users with this text in a name.", show_default=False)] = "",
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List the users that you may see.

    Try:

        remuda user list
        remuda user list --search anna --output json
    """
    query = {"search": search} if search else {}
    users = cell.ask(lambda client: client.pages("/api/v4/users", limit=None, **query))
    columns: Columns = {
        "user": "username",
        "number": "id",
        "state": "state",
        "name": "name",
        "email": "email",
        "administrator": "is_admin",
        "created": at("created_at"),
    }
    print_list(users, columns, output, nothing="there are no such users")


def show(
    user: Annotated[str, Parameter(help="Name or number of the user [default: you].", show_default=False)] = "",
    /,
    *,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Show a user; without USER, the one to whom your token belongs.

    Try:

        remuda user show
        remuda user show anna --output json
    """

    async def ask(client: "UserClient") -> dict[str, Any]:
        found: dict[str, Any] = await (find_user(client, user) if user else client.call("GET", "/api/v4/user"))
        return found

    found = cell.ask(ask)
    facts: Columns = {
        "number": "id",
        "name": "name",
        "state": "state",
        "email": "email",
        "administrator": "is_admin",
        "created": at("created_at"),
    }
    print_facts(f"user {found['username']}", found, facts, output)


def create(
    username: Annotated[str, Parameter(help="Name for logging in, also the path of the user's own projects.")],
    /,
    *,
    email: Annotated[str, Parameter(help="Address of the user.")],
    name: Annotated[str, Parameter(help="Full name [default: USERNAME].", show_default=False)] = "",
    admin: Annotated[bool, Parameter(negative=(), help="Make the user an administrator.")] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Create a user. A token lets the user call the cell: `remuda token create NAME --user USERNAME`.

    Try:

        remuda user create anna --email anna@example.org --name "Anna Example"
        remuda token create first --user anna
    """
    body = {"username": username, "name": name or username, "email": email, "admin": admin}
    new = cell.ask(lambda client: client.call("POST", "/api/v4/users", body))
    words = f"user {username} is created; create a token: remuda token create first --user {username}"
    print_change(new, words, output)


def set_user(
    user: UserName,
    /,
    *,
    name: Annotated[str, Parameter(help="Full name.", show_default=False)] = "",
    email: Annotated[str, Parameter(help="Address.", show_default=False)] = "",
    admin: Annotated[bool | None, Parameter(help="Whether the user is an administrator.", show_default=False)] = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Change a user.

    Try:

        remuda user set anna --email anna@example.com
        remuda user set anna --admin
    """
    body: dict[str, Any] = ({"name": name} if name else {}) | ({"email": email} if email else {})
    if admin is not None:
        body["admin"] = admin
    if not body:
        raise BadInputError("nothing to change: give --name, --email or --admin")

    async def ask(client: "UserClient") -> dict[str, Any]:
        number = (await find_user(client, user))["id"]
        changed: dict[str, Any] = await client.call("PUT", below("users", number), body)
        return changed

    changed = cell.ask(ask)
    print_change(changed, f"user {changed['username']} is changed", output)


def block(user: UserName, /, *, yes: Yes = False, cell: CellAddress = USUAL_CELL) -> None:
    """Block a user: the user's tokens are not accepted until `remuda user unblock`.

    Try:

        remuda user block anna
    """
    confirm(f"block {user}", yes=yes)
    cell.ask(lambda client: _act(client, user, "block"))
    print(f"user {user} is blocked; `remuda user unblock {user}` ends that")


def unblock(user: UserName, /, *, cell: CellAddress = USUAL_CELL) -> None:
    """Let a blocked user work again.

    Try:

        remuda user unblock anna
    """
    cell.ask(lambda client: _act(client, user, "unblock"))
    print(f"user {user} is not blocked any more")


def delete(
    user: UserName,
    /,
    *,
    with_groups: Annotated[
        bool, Parameter(negative=(), help="Also delete the groups that only this user owns, with their projects.")
    ] = False,
    yes: Yes = False,
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Delete a user with tokens, memberships and own projects, for ever.

    Try:

        remuda user delete anna
        remuda user delete anna --with-groups --yes
    """
    found = cell.ask(lambda client: find_user(client, user))
    what = "own projects and the groups that nobody else owns" if with_groups else "own projects"
    confirm(f"delete the user {found['username']} with tokens, memberships, {what}, for ever", yes=yes)
    query = {"hard_delete": "true"} if with_groups else {}
    cell.ask(lambda client: client.call("DELETE", below("users", found["id"]), None, **query))
    print(f"user {found['username']} is deleted")


async def _act(client: "UserClient", user: str, action: str) -> None:
    await client.call("POST", below("users", (await find_user(client, user))["id"], action))
