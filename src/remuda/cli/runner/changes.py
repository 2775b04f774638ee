"""`remuda runner create`, `pause`, `resume`, `rotate`, `tags` and `remove`: change the runners of a cell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress, below, in_project
from remuda.cli.access.confirmation import Yes, confirm
from remuda.cli.options import Output, repeatable
from remuda.cli.render.listing import print_change, print_json
from remuda.lib.exits import BadInputError
from remuda.localrun.render.words import plural

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

RunnerNumber = Annotated[int, Parameter(help="Number of the runner.")]
AddTags = Annotated[tuple[str, ...], repeatable("--add", "Tags to add, separated by commas.")]
RemoveTags = Annotated[tuple[str, ...], repeatable("--remove", "Tags to remove, separated by commas.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NewRunner:
    """What a new runner serves and takes, as one parameter of `runner create`."""

    description: Annotated[
        str, Parameter(name=("--description", "-d"), help="What the runner is called in lists.", show_default=False)
    ] = ""
    project: Annotated[
        str, Parameter(name=("--project", "-p"), help="Serve this project only.", show_default=False)
    ] = ""
    group: Annotated[
        str, Parameter(name=("--group", "-g"), help="Serve the projects of this group only.", show_default=False)
    ] = ""
    tags: Annotated[tuple[str, ...], repeatable("--tags", "Tags, separated by commas.")] = ()
    untagged: Annotated[
        bool | None, Parameter(help="Also take jobs without tags [default: if the runner has no tags].")
    ] = None
    protected: Annotated[bool, Parameter(negative=(), help="Take only jobs of protected branches and tags.")] = False
    paused: Annotated[bool, Parameter(negative=(), help="Take no jobs before `remuda runner resume`.")] = False
    maximum_timeout: Annotated[int | None, Parameter(help="Longest time of a job in seconds, at least 600.")] = None

    def body(self) -> dict[str, Any]:
        tags = _split(self.tags)
        body: dict[str, Any] = {
            "description": self.description,
            "tag_list": tags,
            "run_untagged": (not tags) if self.untagged is None else self.untagged,
            "access_level": "ref_protected" if self.protected else "not_protected",
            "paused": self.paused,
        }
        return body if self.maximum_timeout is None else {**body, "maximum_timeout": self.maximum_timeout}


_USUAL_RUNNER = NewRunner()


def create(*, new: NewRunner = _USUAL_RUNNER, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Create a runner, and print its token, which the cell shows only this once.

    Without --project and --group, the runner serves all projects of the cell; only administrators can create it.

    Try:

        remuda runner create --description builder --tags linux,docker
        remuda runner create -p root/shop -d "shop's own" --output json
        remuda manager register --url https://ci.example.org --token TOKEN --executor shell
    """
    if new.project and new.group:
        raise BadInputError("--project and --group contradict each other; leave one of them out")

    async def ask(client: "UserClient") -> dict[str, Any]:
        kind: dict[str, Any] = {"runner_type": "instance_type"}
        if new.project:
            found = await client.call("GET", in_project(new.project))
            kind = {"runner_type": "project_type", "project_id": found["id"]}
        elif new.group:
            found = await client.call("GET", below("groups", new.group))
            kind = {"runner_type": "group_type", "group_id": found["id"]}
        created: dict[str, Any] = await client.call("POST", "/api/v4/user/runners", {**new.body(), **kind})
        return created

    created = cell.ask(ask)
    if output == "json":
        print_json(created)
        return
    print(f"runner {created['id']} is created. Its token, which is not shown again: {created['token']}")
    print(f"Use it: remuda manager register --url {cell.find().url} --token {created['token']} --executor shell")


def pause(runner: RunnerNumber, /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Let a runner take no more jobs. Its running jobs continue.

    Try:

        remuda runner pause 3
    """
    changed = cell.ask(lambda client: _change(client, runner, {"paused": True}))
    print_change(changed, f"runner {runner} is paused; `remuda runner resume {runner}` ends that", output)


def resume(runner: RunnerNumber, /, *, cell: CellAddress = USUAL_CELL, output: Output = "text") -> None:
    """Let a paused runner take jobs again.

    Try:

        remuda runner resume 3
    """
    changed = cell.ask(lambda client: _change(client, runner, {"paused": False}))
    print_change(changed, f"runner {runner} takes jobs", output)


def rotate(
    runner: RunnerNumber, /, *, yes: Yes = False, cell: CellAddress = USUAL_CELL, output: Output = "text"
) -> None:
    """Replace the token of a runner, and print the new one. The old one is invalid at once.

    Managers with the old token get no jobs until they have the new one. `remuda manager reset-token` does both on the
    machine of the manager.

    Try:

        remuda runner rotate 3
        remuda runner rotate 3 --yes --output json
    """
    confirm(f"make the token of runner {runner} invalid for all its managers", yes=yes)
    path = f"/api/v4/runners/{runner}/reset_authentication_token"
    answer = cell.ask(lambda client: client.call("POST", path))
    print_change(answer, f"The new token of runner {runner}, which is not shown again: {answer['token']}", output)


def tags(
    runner: RunnerNumber,
    tag: Annotated[tuple[str, ...], Parameter(help="All tags of the runner from now on.", show_default=False)] = (),
    /,
    *,
    add: AddTags = (),
    remove: RemoveTags = (),
    clear: Annotated[bool, Parameter(negative=(), help="Remove all tags.")] = False,
    untagged: Annotated[bool | None, Parameter(help="Also take jobs without tags.", show_default=False)] = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Show or change the tags of a runner, and whether it takes jobs without tags.

    Try:

        remuda runner tags 3
        remuda runner tags 3 linux docker
        remuda runner tags 3 --add gpu --remove docker --no-untagged
    """
    if (tag or clear) and (add or remove):
        raise BadInputError("give either all tags, or --add and --remove")

    async def ask(client: "UserClient") -> dict[str, Any]:
        now: dict[str, Any] = await client.call("GET", f"/api/v4/runners/{runner}")
        new = _new_tags(now["tag_list"], _split(tag), _split(add), _split(remove), clear=clear)
        change: dict[str, Any] = {} if new == now["tag_list"] else {"tag_list": new}
        if untagged is not None:
            change["run_untagged"] = untagged
        return await _change(client, runner, change) if change else now

    print_change(runner_now := cell.ask(ask), _describe_tags(runner_now), output)


def remove(
    runner: RunnerNumber, /, *, yes: Yes = False, cell: CellAddress = USUAL_CELL, output: Output = "text"
) -> None:
    """Remove a runner from the cell. Jobs that it runs fail.

    Try:

        remuda runner remove 3
        remuda runner remove 3 --yes
    """
    runner_now = cell.ask(lambda client: client.call("GET", f"/api/v4/runners/{runner}"))
    name = f"runner {runner} ({runner_now['description'] or 'without a description'})"
    confirm(f"remove {name} and let its running jobs fail", yes=yes)
    cell.ask(lambda client: client.call("DELETE", f"/api/v4/runners/{runner}"))
    print_change(runner_now, f"{name} is removed", output)


async def _change(client: "UserClient", runner: int, change: Mapping[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = await client.call("PUT", f"/api/v4/runners/{runner}", change)
    return changed


def _split(tags: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(tag.strip() for text in tags for tag in text.split(",") if tag.strip()))


def _new_tags(now: list[str], chosen: list[str], added: list[str], removed: list[str], *, clear: bool) -> list[str]:
    if chosen or clear:
        return chosen
    if missing := [tag for tag in removed if tag not in now]:
        raise BadInputError(
            f"--remove: the runner has no tag {', '.join(missing)}; its tags: {', '.join(now) or 'none'}"
        )
    return [tag for tag in dict.fromkeys((*now, *added)) if tag not in removed]


def _describe_tags(runner: Mapping[str, Any]) -> str:
    names = runner["tag_list"]
    has = f"has {plural(len(names), 'tag')}: {', '.join(names)}" if names else "has no tags"
    return f"runner {runner['id']} {has}; it takes {'also' if runner['run_untagged'] else 'no'} jobs without tags"
