"""`remuda token`: access tokens of users, projects and groups."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, below
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.admin.place import ROLES, Group, Role, find_user, role_name
from remuda.cli.options import Output, repeatable
from remuda.cli.render.listing import Columns, print_json, print_list
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

TokenNumber = Annotated[str, Parameter(help="Number of the token; for personal tokens also self, the one in use.")]
Expires = Annotated[str, Parameter(name=("--expires", "-e"), help="Its last day, YYYY-MM-DD.", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TokenPlace:
    """The project or group whose tokens a command is about; neither: personal tokens."""

    project: Annotated[
        str,
        Parameter(name=("--project", "-p"), help="Tokens of this project, not your own.", show_default=False),
    ] = ""
    group: Group = ""

    def is_chosen(self) -> bool:
        return bool(self.project or self.group)

    def path(self) -> str:
        if self.project and self.group:
            raise BadInputError("--project and --group contradict each other; give one of them")
        if self.project:
            return below("projects", self.project, "access_tokens")
        return below("groups", self.group, "access_tokens") if self.group else "/api/v4/personal_access_tokens"


PERSONAL = TokenPlace()


def list_tokens(
    *,
    place: TokenPlace = PERSONAL,
    all_tokens: Annotated[
        bool, Parameter(name=("--all", "-a"), negative=(), help="List revoked and expired tokens, too.")
    ] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List your personal tokens (administrators: those of all users), or the tokens of a project or group.

    Try:

        remuda token list
        remuda token list -p root/shop --all
    """
    path = place.path()
    state = {} if all_tokens else {"state": "active"}
    tokens = cell.ask(lambda client: client.pages(path, limit=None, **state))
    columns: Columns = {
        "token": "id",
        "state": lambda token: "active" if token["active"] else "revoked" if token["revoked"] else "expired",
        "name": "name",
        "user": "user_id",
        "role": lambda token: role_name(token["access_level"]) if "access_level" in token else "",
        "scopes": "scopes",
        "expires": "expires_at",
        "last used": lambda token: (token.get("last_used_at") or "")[:10],
        "description": "description",
    }
    print_list(tokens, columns, output, nothing="there are no tokens; create one with `remuda token create NAME`")


def create(
    name: Annotated[str, Parameter(help="What the token is called in lists.")],
    /,
    *,
    scope: Annotated[
        tuple[str, ...],
        repeatable("--scope", "What it may do, such as api, read_api or read_repository [default: api]."),
    ] = (),
    expires: Expires = "",
    place: TokenPlace = PERSONAL,
    role: Annotated[Role, Parameter(help="Its role in the project or group.", show_default=False)] = "maintainer",
    user: Annotated[str, Parameter(help="Create it for this user. Only for administrators.", show_default=False)] = "",
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Create a token, and print it. The cell shows it only this once.

    stdout has the token alone, so that a script can store it.

    Try:

        remuda token create laptop --expires 2027-06-30
        remuda token create deploy -p root/shop --role developer --scope read_api --scope write_repository
        remuda token create first --user anna > anna.token
    """
    if user and place.is_chosen():
        raise BadInputError("--user is for personal tokens; leave out --project and --group")
    body: dict[str, Any] = {"name": name, "scopes": list(scope) or ["api"]}
    if expires:
        body["expires_at"] = expires
    if place.is_chosen():
        body["access_level"] = ROLES[role]

    async def ask(client: "UserClient") -> dict[str, Any]:
        if user:
            path = below("users", (await find_user(client, user))["id"], "personal_access_tokens")
        else:
            path = place.path() if place.is_chosen() else "/api/v4/user/personal_access_tokens"
        created: dict[str, Any] = await client.call("POST", path, body)
        return created

    _print_secret(cell.ask(ask), "is created", output)


def revoke(
    token: TokenNumber,
    /,
    *,
    place: TokenPlace = PERSONAL,
    yes: Yes = False,
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Revoke a token: it is invalid at once and for ever.

    Try:

        remuda token revoke 12
        remuda token revoke 12 -p root/shop --yes
    """
    confirm(f"make the token {token} invalid for ever", yes=yes)
    cell.ask(lambda client: client.call("DELETE", f"{place.path()}/{_number(token)}"))
    print(f"token {token} is revoked")


def rotate(
    token: TokenNumber,
    /,
    *,
    expires: Expires = "",
    place: TokenPlace = PERSONAL,
    yes: Yes = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Replace a token by a new one with the same scopes, and print it. The old one is invalid at once.

    stdout has the new token alone.

    Try:

        remuda token rotate 12 --expires 2027-06-30
        remuda token rotate 12 -p root/shop --yes > deploy.token
    """
    confirm(f"make the token {token} invalid and create a new one", yes=yes)
    body = {"expires_at": expires} if expires else {}
    path = f"{place.path()}/{_number(token)}/rotate"
    new = cell.ask(lambda client: client.call("POST", path, body))
    _print_secret(new, f"replaces token {token}", output)


def _number(token: str) -> str:
    if token != "self" and not (token.isascii() and token.isdigit()):
        # The text may be a token.
        raise BadInputError("TOKEN is the number of a token, not the token itself; `remuda token list` lists them")
    return token


def _print_secret(token: dict[str, Any], what: str, output: str) -> None:
    if output == "json":
        print_json(token)
        return
    until = f", valid until {token['expires_at']}" if token["expires_at"] else ""
    print(f"token {token['id']} ({token['name']}) {what}{until}; it is not shown again:", file=sys.stderr)
    print(token["token"])
