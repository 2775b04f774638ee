"""`remuda cell serve`: options and environment become the settings of a cell, which then runs until a signal."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.exits import BadInputError
from remuda.cli.options import Data, data_folder, listen_address

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings

Database = Annotated[
    str | None,
    Parameter(help="postgresql://USER:PASSWORD@HOST:PORT/NAME [default: REMUDA_DATABASE, or a file in --data]."),
]

PREFIX = "REMUDA_"
BY_OPTION = frozenset({"REMUDA_DATA", "REMUDA_HOST", "REMUDA_PORT", "REMUDA_CELL_ID"})
OTHER_VARIABLES = frozenset(
    {f"{PREFIX}{name}" for name in ("URL", "TOKEN", "DEBUG", "LOG_LEVEL", "KILL_POINT", "KILL_MARK")}
    | {f"{PREFIX}{name}" for name in ("PATIENCE_SECONDS", "INPUTS")}
)
"""Variables of other parts of Remuda."""


def serve(
    *,
    data: Data = None,
    listen: Annotated[str, Parameter(help="HOST:PORT to serve on; port 0 picks a free one.")] = "127.0.0.1:8929",
    cell_id: Annotated[int, Parameter(help="Number of this cell; never changes for a data folder.")] = 1,
    database: Database = None,
) -> None:
    """Serve a cell: projects, pipelines, jobs, traces, artifacts, git.

    The first start makes an administrator's token and prints it once; REMUDA_ADMIN_TOKEN gives one of your choice.
    SIGTERM and Ctrl-C stop it; held polls are answered at once. Every setting of a cell can be given in the
    environment: REMUDA_PUBLIC_URL, REMUDA_LEASE_SECONDS, REMUDA_ARTIFACT_LIMIT_BYTES and so on. With a PostgreSQL
    database several processes may serve one data folder, each on an address of its own; give all of them the address
    that people use as REMUDA_PUBLIC_URL.

    Try:

        remuda cell serve --data /var/lib/remuda --listen 127.0.0.1:8929
        remuda cell serve --data /var/lib/remuda --database postgresql://remuda@db.example/remuda
        REMUDA_ADMIN_TOKEN=choose-a-long-one remuda cell serve --data ./cell --listen 0.0.0.0:8929
    """
    host, port = listen_address(listen)
    print_warnings(os.environ)
    settings = settings_from(
        os.environ, data=cell_folder(data), host=host, port=port, cell_id=cell_id, database=database
    )
    asyncio.run(_serve(settings))


def cell_folder(data: Path | None) -> Path:
    """The folder of a cell: the given one, or `cell` in the user's data folder."""
    return data.absolute() if data else data_folder(None) / "cell"


def settings_from(
    environment: Mapping[str, str],
    *,
    data: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    cell_id: int = 1,
    database: str | None = None,
) -> "CellSettings":
    """A cell's settings: what is given, and REMUDA_<NAME> for the rest."""
    import msgspec

    from remuda.cell.settings import CellSettings, is_fit, wanted_number

    values: dict[str, object] = {"data": data, "host": host, "port": port, "cell_id": cell_id}
    if database is not None:
        values["database"] = database
    for field in msgspec.structs.fields(CellSettings):
        variable = f"{PREFIX}{field.name.upper()}"
        if field.name in values or not environment.get(variable):
            continue
        wanted = wanted_number(field.name)
        given: object = environment[variable]
        if isinstance(field.default, tuple):
            given = environment[variable].replace(",", " ").split()
        try:
            value = msgspec.convert(given, field.type, strict=False)
        except msgspec.ValidationError as error:
            raise BadInputError(f"{variable}={environment[variable]}: {wanted or str(error).lower()}") from None
        if wanted and not is_fit(field.name, value):
            raise BadInputError(f"{variable}={environment[variable]}: {wanted}")
        values[field.name] = value
    return msgspec.convert(values, CellSettings)


def warnings_about(environment: Mapping[str, str]) -> list[str]:
    """What to say about variables that look like settings of a cell and are none."""
    import difflib

    import msgspec

    from remuda.cell.settings import CellSettings

    settings = {f"{PREFIX}{field.name.upper()}" for field in msgspec.structs.fields(CellSettings)} - BY_OPTION
    said = []
    for name in sorted(environment):
        if name in BY_OPTION:
            said.append(f"{name}: has no effect; use --data, --listen and --cell-id")
        elif name.startswith(PREFIX) and name not in settings | OTHER_VARIABLES:
            near = difflib.get_close_matches(name, sorted(settings), n=1)
            said.append(f"{name}: there is no such setting" + (f"; did you mean {near[0]}?" if near else ""))
    return said


def print_warnings(environment: Mapping[str, str]) -> None:
    """A misspelt setting must not go unnoticed; it stops nothing, because it may be meant for another version."""
    for warning in warnings_about(environment):
        print(f"remuda: warning: {warning}", file=sys.stderr, flush=True)


def print_token(token: str) -> None:
    """Show the administrator's token, which is stored only hashed. On stderr, where it lands in no pipe by accident."""
    print(
        f"\nThe administrator's token, shown only this once:\n\n    {token}\n\n"
        "Send it as PRIVATE-TOKEN, or put it into REMUDA_TOKEN for `remuda job`.\n",
        file=sys.stderr,
        flush=True,
    )


async def _serve(settings: "CellSettings") -> None:
    from remuda.cell.service import CellService
    from remuda.cli.signals import STOPPING, handled
    from remuda.telemetry import logs

    logs.configure()
    stop = asyncio.Event()
    service = CellService(settings)

    def ready(url: str) -> None:
        if service.admin_token_generated:
            print_token(service.admin_token_generated)
        print(f"the cell serves on {url}", file=sys.stderr, flush=True)

    with handled(dict.fromkeys(STOPPING, stop.set)):
        await service.run(stop, ready=ready)
