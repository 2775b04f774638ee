"""`remuda job log` and `remuda job payload`: print what a runner sent and what it got."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.access.cell_address import USUAL_CELL, CellAddress
from remuda.cli.job.listing import JobNumber
from remuda.cli.render.colors import has_colors
from remuda.cli.render.listing import print_json

if TYPE_CHECKING:
    from remuda.wire.user_client import UserClient

FOLLOW_SECONDS = 0.5
RETRY_SECONDS = 2.0


def payload(job: JobNumber, /, *, cell: CellAddress = USUAL_CELL) -> None:
    """Print the payload that a runner gets with a job, as JSON, without secrets.

    Try:

        remuda job payload 7 > payload.json
    """
    print_json(cell.ask(lambda client: client.payload(job)))


def log(
    job: JobNumber,
    /,
    *,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), negative=(), help="Continue until the job has ended.")
    ] = False,
    raw: Annotated[
        bool, Parameter(negative=(), help="Print the stored bytes, with line headers and section markers.")
    ] = False,
    cell: CellAddress = USUAL_CELL,
) -> None:
    """Print a job's log.

    Colours and other control sequences of the log are printed on a terminal only, and not under NO_COLOR or TERM=dumb;
    --raw prints them everywhere.

    With --follow, the log continues at the same byte after a broken connection or a restart of the cell.

    Try:

        remuda job log 7
        remuda job log 7 --follow
        remuda job log 7 --raw > job.log
    """
    cell.ask(lambda client: _copy_log(client, job, follow=follow, raw=raw))


async def _copy_log(client: "UserClient", job: int, *, follow: bool, raw: bool) -> None:
    from remuda.localrun.render.log_text import LogText
    from remuda.model.job import FINAL
    from remuda.wire.user_client import RefusedError, UserApiError

    text = LogText(is_plain=not has_colors(sys.stdout))
    offset = 0
    was_connected = lost = False
    while True:
        try:
            part = await client.trace(job, offset)
        except RefusedError:
            raise
        except UserApiError as error:
            if not follow or not was_connected:
                raise
            if not lost:
                print(f"remuda: {error}; trying again", file=sys.stderr)
            lost = True
            await asyncio.sleep(RETRY_SECONDS)
            continue
        was_connected, lost = True, False
        offset += len(part.data)
        _write(part.data if raw else text.feed(part.data).encode())
        if not follow or part.state in FINAL:
            break
        if not part.data:
            await asyncio.sleep(FOLLOW_SECONDS)
    _write(b"" if raw else text.finish().encode())
    if not offset:
        print(f"remuda: {_explain_absence(job, part.state)}", file=sys.stderr)


def _explain_absence(job: int, status: str) -> str:
    from remuda.model.job import FINAL

    if status in FINAL:
        return f"job {job} has no log (any more); `remuda job why {job}` says how it ended"
    advice = f"--follow waits for it, `remuda job why {job}` says what it waits for"
    return f"job {job} is {status} and has no log yet; {advice}"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
