"""`remuda runner list`: the runners of a cell and the managers that work for them."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from remuda.cli.listing import local_time, print_json, print_table, with_client
from remuda.cli.options import Data, Output, Url

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

_HEADINGS = ("runner", "description", "type", "tags", "manager", "version", "jobs", "load", "status", "seen")


def list_runners(*, url: Url = None, data: Data = None, output: Output = "text") -> None:
    """List runners with their managers: how many jobs each has, and how many it says that it can run.

    Load is the part of a manager's slots that jobs have, those of its other servers included, as of a minute ago.

    Administrators see all of the cell, others those that they manage.

    Try:

        remuda runner list
        REMUDA_TOKEN=... remuda runner list --url https://ci.example.org --output json
    """

    async def ask(client: "UserClient") -> list[dict[str, Any]]:
        is_admin = (await client.call("GET", "/api/v4/user")).get("is_admin")
        runners = await client.pages("/api/v4/runners/all" if is_admin else "/api/v4/runners")
        found = []
        for runner in runners:
            path = f"/api/v4/runners/{runner['id']}"
            found.append({**await client.call("GET", path), "managers": await client.pages(f"{path}/managers")})
        return found

    runners = asyncio.run(with_client(url, data, ask))
    if output == "json":
        print_json(runners)
        return
    print_table([_HEADINGS, *(row for runner in runners for row in rows_of(runner))])


def rows_of(runner: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    """A line for each manager, or one that says how the runner stands."""
    about = (
        str(runner["id"]),
        runner["description"] or "",
        runner["runner_type"].removesuffix("_type"),
        ", ".join(runner["tag_list"]),
    )
    if not runner["managers"]:
        yield (*about, "", "", "", "", _status(runner, runner["status"]), local_time(runner["contacted_at"]))
    for manager in runner["managers"]:
        yield (
            *about,
            manager["system_id"],
            manager["version"] or "",
            f"{manager['running_jobs']}" + (f"/{manager['capacity']}" if manager["capacity"] is not None else ""),
            f"{load['saturation']:.0%}" if (load := manager.get("load")) else "",
            _status(runner, manager["status"]),
            local_time(manager["contacted_at"]),
        )


def _status(runner: Mapping[str, Any], status: str) -> str:
    return f"{status}, paused" if runner["paused"] else status
