"""`remuda events`: prints the changes in a cell, one line each. Reconnects and continues after the last one printed."""

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress
from remuda.cli.options import Output
from remuda.localrun.render.words import on_one_line

if TYPE_CHECKING:
    from remuda.wire.user_client import EventInfo, UserClient

RETRY_SECONDS = 2.0


def events(
    *,
    project: Annotated[
        str | None, Parameter(name=("--project", "-p"), help="Show only changes of this project (path or number).")
    ] = None,
    pipeline: Annotated[int | None, Parameter(help="Show only changes of this pipeline and its jobs.")] = None,
    job: Annotated[int | None, Parameter(help="Show only changes of this job.")] = None,
    kind: Annotated[
        str | None, Parameter(help="Show only these kinds, separated by commas: job, pipeline, runner.")
    ] = None,
    cell: CellAddress = USUAL_CELL,
    output: Output = "text",
) -> None:
    """Print changes in a cell as they happen.

    Prints a line for every changed job, pipeline and runner that you may see, until Ctrl-C. After a broken connection
    it continues after the last printed change. A `reset` line means that changes may be missing.

    Try:

        remuda events
        remuda events --project root/shop --kind pipeline
        remuda events --job 7 --output json
    """
    options = {"project": project, "pipeline": pipeline, "job": job, "kind": kind}
    filters = {name: value for name, value in options.items() if value is not None}
    cell.ask(lambda client: _follow(client, filters, as_json=output == "json"))


async def _follow(client: "UserClient", filters: Mapping[str, str | int], *, as_json: bool) -> None:
    from remuda.wire.user_client import RefusedError, UserApiError

    last, was_connected, last_error = "", False, ""
    while True:
        try:
            async for event in client.events(after=last, **filters):
                last, was_connected, last_error = event.id or last, True, ""
                if event.kind != "heartbeat":
                    print(_as_json(event) if as_json else line(event, time.time()), flush=True)
        except RefusedError:
            raise
        except UserApiError as error:
            if not was_connected:
                raise
            if last_error != str(error):
                print(f"remuda: {error}; trying again", file=sys.stderr)
            last_error = str(error)
        await asyncio.sleep(RETRY_SECONDS if not last or last_error else 0.1)


def line(event: "EventInfo", now: float) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    return on_one_line(f"{clock}  {event.kind:<8} {_words(event.kind, event.data)}")


def _words(kind: str, data: Mapping[str, Any]) -> str:
    if kind == "reset":
        return str(data.get("reason", ""))
    names = {
        "job": f"{data.get('name')} in pipeline {data.get('pipeline_id')}",
        "pipeline": f"{data.get('ref')} of project {data.get('project_id')}",
        "runner": f"{data.get('description') or ''}{' (paused)' if data.get('paused') else ''}",
    }
    why = f" ({data['failure_reason']})" if data.get("failure_reason") else ""
    return f"{data.get('id')}  {data.get('status')}{why}  {names.get(kind, '')}".rstrip()


def _as_json(event: "EventInfo") -> str:
    import msgspec

    return msgspec.json.encode(event).decode()
