"""`remuda cell serve`: reads the settings (`remuda.cli.cell.settings`) and runs a cell until a signal stops it."""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.cell.settings import NO_CELL_OPTIONS, CellOptions
from remuda.cli.options import listen_address
from remuda.lib import event_loop

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings


def serve(
    *,
    cell: CellOptions = NO_CELL_OPTIONS,
    listen: Annotated[
        str | None, Parameter(help="HOST:PORT to serve on. Port 0 means any free port [default: 127.0.0.1:8929].")
    ] = None,
    cell_id: Annotated[
        int | None, Parameter(help="Number of this cell. It cannot change for a data folder [default: 1].")
    ] = None,
    tls_certificate: Annotated[
        Path | None, Parameter(help="PEM file with the cell's certificate and its authorities: serve HTTPS.")
    ] = None,
    tls_key: Annotated[
        Path | None, Parameter(help="PEM file with the certificate's key, if --tls-certificate does not have it.")
    ] = None,
) -> None:
    """Serve a cell: projects, pipelines, jobs, traces, artifacts, git.

    The first start creates an administrator's token and prints it once; REMUDA_ADMIN_TOKEN sets it instead. SIGTERM and
    Ctrl-C stop the cell; waiting job requests are answered first. Every setting of a cell can be set in the environment
    (REMUDA_PUBLIC_URL, REMUDA_LEASE_SECONDS and so on) or in the file cell.toml (public_url = "...", lease_seconds
    = 60 and so on). Options win over the environment, and the environment wins over the file. With a PostgreSQL
    database, several processes can serve one data folder, each on its own address. Set public_url of all of them to
    the address that people use. With a certificate, SIGHUP reads certificate and key again; a changed file is noticed
    within seconds, too.

    Try:

        remuda cell serve --data /var/lib/remuda --listen 127.0.0.1:8929
        remuda cell serve --data /var/lib/remuda --database postgresql://remuda@db.example/remuda
        remuda cell serve --config /etc/remuda/cell.toml
        remuda cell serve --listen 0.0.0.0:443 --tls-certificate /etc/remuda/cell.crt --tls-key /etc/remuda/cell.key
        REMUDA_ADMIN_TOKEN=choose-a-long-one remuda cell serve --data ./cell --listen 0.0.0.0:8929
    """
    host, port = listen_address(listen) if listen is not None else (None, None)
    certificate = {
        name: None if path is None else path.absolute()
        for name, path in (("tls_certificate", tls_certificate), ("tls_key", tls_key))
    }
    event_loop.run(_serve(*cell.settings_and_sources(host=host, port=port, cell_id=cell_id, **certificate)))


def print_token(token: str) -> None:
    """Print the administrator's token once, to stderr, so that it does not get into a pipe by accident."""
    print(
        f"\nThe administrator's token, shown only this once:\n\n    {token}\n\n"
        "`remuda login ADDRESS` asks for it; other clients send it as PRIVATE-TOKEN.\n",
        file=sys.stderr,
        flush=True,
    )


async def _serve(settings: "CellSettings", sources: Mapping[str, str]) -> None:
    from remuda.cell.service import CellService
    from remuda.lib.signals import STOPPING, handle_signals
    from remuda.telemetry import logs

    logs.configure()
    stop = asyncio.Event()
    service = CellService(settings, sources=sources)

    def ready(url: str) -> None:
        if service.admin_token_generated:
            print_token(service.admin_token_generated)
        print(f"the cell serves on {url}", file=sys.stderr, flush=True)

    handlers = dict.fromkeys(STOPPING, stop.set)
    if settings.tls_certificate is not None or not sys.stdin.isatty():
        # No terminal can hang up: the signal comes from `systemctl reload` or a renewed certificate.
        handlers[signal.SIGHUP] = service.reload_certificate
    with handle_signals(handlers, hangup_stops=handlers[signal.SIGHUP] == stop.set):
        await service.run(stop, ready=ready)
