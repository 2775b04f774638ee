"""The options that choose a project, a group or the whole cell, for variables and tokens; roles and users by name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from remuda.cli.access.cell_address import CellAddress, below, in_project
from remuda.cli.options import Project
from remuda.lib.exits import BadInputError

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

ROLES = {"guest": 10, "planner": 15, "reporter": 20, "developer": 30, "maintainer": 40, "owner": 50}
Role = Literal["guest", "planner", "reporter", "developer", "maintainer", "owner"]
Group = Annotated[
    str, Parameter(name=("--group", "-g"), help="Group, by path or number, instead of a project.", show_default=False)
]


def role_name(level: int) -> str:
    return next((name for name, number in ROLES.items() if number == level), str(level))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Place:
    """A project, a group or the cell, as one parameter of a command."""

    project: Project = None
    group: Group = ""
    instance: Annotated[
        bool, Parameter(name=("--instance", "-i"), negative=(), help="The whole cell. Only for administrators.")
    ] = False

    def is_chosen(self) -> bool:
        return bool(self.project or self.group or self.instance)

    def resolve(self, cell: CellAddress) -> "Place":
        """Return the place with the project of the current folder if none is chosen. BadInputError if two are chosen,
        or if there is none."""
        if sum(map(bool, (self.project, self.group, self.instance))) > 1:
            raise BadInputError("--project, --group and --instance contradict each other; give one of them")
        return self if self.is_chosen() else Place(project=cell.project(None))

    def path(self, *words: str | int) -> str:
        """Return a path of the API below a project or group."""
        return below("groups", self.group, *words) if self.group else in_project(self.project or "", *words)

    def __str__(self) -> str:
        if self.instance:
            return "the cell"
        return f"the group {self.group}" if self.group else f"the project {self.project}"


USUAL_PLACE = Place()


async def find_user(client: "UserClient", user: str) -> dict[str, Any]:
    """Return the user with this name or number. Raises BadInputError if there is none, or the caller may not see it."""
    if user.isascii() and user.isdigit():
        by_number: dict[str, Any] = await client.call("GET", below("users", user))
        return by_number
    found = await client.pages("/api/v4/users", limit=None, username=user)
    if not found:
        raise BadInputError(f"there is no user {user}, or you may not see them; `remuda user list` lists users")
    by_name: dict[str, Any] = found[0]
    return by_name
