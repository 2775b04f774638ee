"""`remuda variable`: the CI variables of a project, a group or the whole cell."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress
from remuda.cli.access.confirmation import Yes, confirm, read_secret
from remuda.cli.admin.place import USUAL_PLACE, Place
from remuda.cli.options import Output
from remuda.cli.render.listing import Columns, print_change, print_json, print_list
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

HIDDEN = "[masked]"
Key = Annotated[str, Parameter(help="Name of the variable.")]
Scope = Annotated[
    str, Parameter(name="--scope", help="Its environment scope, such as production or review/*.", show_default=False)
]


def list_variables(
    *,
    place: Place = USUAL_PLACE,
    values: Annotated[
        bool, Parameter(negative=(), help="Show the values of masked variables, too. --output json always has them.")
    ] = False,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """List the variables of a project, a group (-g) or the cell (--instance).

    Try:

        remuda variable list
        remuda variable list -p root/shop --values
        remuda variable list -g acme --output json
    """
    where = place.resolve(cell)
    variables = cell.ask(lambda client: client.pages(_path(where)))
    columns: Columns = {
        "name": "key",
        "value": lambda variable: variable["value"] if values or not variable["masked"] else HIDDEN,
        "scope": lambda variable: "" if variable["environment_scope"] == "*" else variable["environment_scope"],
        "type": lambda variable: "file" if variable["variable_type"] == "file" else "",
        "masked": "masked",
        "protected": "protected",
        "description": "description",
    }
    print_list(variables, columns, output, nothing=f"{where} has no variables; set one with `remuda variable set NAME`")


def get(
    key: Key,
    /,
    *,
    scope: Scope = "",
    place: Place = USUAL_PLACE,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Print the value of a variable.

    Try:

        remuda variable get DEPLOY_HOST
        remuda variable get DEPLOY_KEY --scope production > key.pem
    """
    where = place.resolve(cell)
    variable = cell.ask(lambda client: client.call("GET", _path(where, key), None, **_filter(scope)))
    if output == "json":
        print_json(variable)
        return
    if variable["value"] is None:
        raise BadInputError(f"the value of {key} is hidden; nobody can read it, but `remuda variable set` replaces it")
    print(variable["value"])


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Properties:
    """What `variable set` stores beside the value. None: unchanged, or the cell's default for a new variable."""

    masked: Annotated[bool | None, Parameter(help="Replace the value in logs by [MASKED].", show_default=False)] = None
    protected: Annotated[
        bool | None, Parameter(help="Only for jobs of protected branches and tags.", show_default=False)
    ] = None
    file: Annotated[bool | None, Parameter(help="Jobs get the path of a file with the value.", show_default=False)] = (
        None
    )
    raw: Annotated[bool | None, Parameter(help="Expand no $NAME in the value.", show_default=False)] = None
    hidden: Annotated[
        bool, Parameter(negative=(), help="Masked, and nobody can read the value again. Only for a new variable.")
    ] = False
    description: Annotated[
        str | None, Parameter(name=("--description", "-d"), help="What it is for.", show_default=False)
    ] = None

    def body(self) -> dict[str, Any]:
        kind = None if self.file is None else "file" if self.file else "env_var"
        body = {
            "masked": self.masked,
            "protected": self.protected,
            "variable_type": kind,
            "raw": self.raw,
            "masked_and_hidden": self.hidden or None,
            "description": self.description,
        }
        return {name: value for name, value in body.items() if value is not None}


_UNCHANGED = Properties()


def set_variable(
    key: Key,
    /,
    *,
    from_file: Annotated[Path | None, Parameter(help="Read the value from this file instead of stdin.")] = None,
    scope: Scope = "",
    properties: Properties = _UNCHANGED,
    place: Place = USUAL_PLACE,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Create a variable, or change its value and properties.

    The value is read from the terminal without echo, or from stdin (without its last line break), so that it is neither
    in the history of the shell nor in the list of processes.

    Try:

        remuda variable set DEPLOY_TOKEN --masked --protected
        echo example.org | remuda variable set DEPLOY_HOST --scope production
        remuda variable set DEPLOY_KEY --file --from-file key.pem
        remuda variable set PROXY --instance < proxy.txt
    """
    where = place.resolve(cell)
    body = {"value": _read_value(key, from_file), **properties.body()}
    changed, is_new = cell.ask(lambda client: _set(client, where, key, scope, body))
    print_change(changed, f"{key} of {where} is {'created' if is_new else 'changed'}{_remarks(changed)}", output)


def delete(
    key: Key,
    /,
    *,
    scope: Scope = "",
    yes: Yes = False,
    place: Place = USUAL_PLACE,
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Delete a variable.

    Try:

        remuda variable delete DEPLOY_HOST
        remuda variable delete DEPLOY_HOST --scope production --yes
    """
    where = place.resolve(cell)
    confirm(f"delete the variable {key} of {where}", yes=yes)
    cell.ask(lambda client: client.call("DELETE", _path(where, key), None, **_filter(scope)))
    print(f"{key} of {where} is deleted")


def _path(place: Place, *words: str) -> str:
    if place.instance:
        return "/".join(["/api/v4/admin/ci/variables", *(quote(word, safe="") for word in words)])
    return place.path("variables", *words)


def _filter(scope: str) -> dict[str, str]:
    return {"filter[environment_scope]": scope} if scope else {}


async def _set(
    client: "UserClient", place: Place, key: str, scope: str, body: Mapping[str, Any]
) -> tuple[dict[str, Any], bool]:
    """Change the variable, or create it if there is none in this scope. Returns it, and True if it is new."""
    from remuda.wire.user_client import RefusedError

    chosen = {"environment_scope": scope} if scope else {}
    try:
        return await client.call("PUT", _path(place, key), {**body, "filter": chosen}, **_filter(scope)), False
    except RefusedError as error:
        if error.status != 404:
            raise
    return await client.call("POST", _path(place), {"key": key, **body, **chosen}), True


def _read_value(key: str, file: Path | None) -> str:
    if file is None:
        return read_secret(f"Value of {key}")
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"--from-file {file}: cannot be read: {error}") from None


def _remarks(variable: Mapping[str, Any]) -> str:
    words = [word for word in ("masked", "protected") if variable[word]]
    if variable["environment_scope"] != "*":
        words.append(f"for environments {variable['environment_scope']}")
    return f" ({', '.join(words)})" if words else ""
