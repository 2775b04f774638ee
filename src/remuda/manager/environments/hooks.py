"""The operator's commands before and after a job (`before_job`, `after_job` in `[runners.remuda]`) on this machine.

They run as the manager's user, outside the job, and see which job it is in their environment. What they print is for
the manager's log. One that fails before a job ends the job with its cause; the job's own commands never ran then.
Environments on other machines run the same command there with the same variables (`hook_variables`).
"""

import asyncio
import os
import signal
from contextlib import suppress

from remuda.lib.processes import reap
from remuda.manager.environments.port import JobPlace
from remuda.manager.errors import EnvironmentLostError

HOOK_SECONDS = 600.0
OUTPUT_BYTES = 64 * 1024
"""Of what a hook prints, the last so many are kept."""


def hook_variables(place: JobPlace, *, work_dir: str) -> dict[str, str]:
    """What a hook sees of its job."""
    return {
        "REMUDA_JOB": place.key.partition("-")[0],
        "REMUDA_RUNNER": place.runner,
        "REMUDA_SLOT": str(place.slot),
        "REMUDA_PROJECT": place.project,
        "REMUDA_WORK_DIR": work_dir,
    }


def hook_failed(name: str, how: str, output: str) -> EnvironmentLostError:
    """How a hook's failure reads, on any machine."""
    words = " ".join(output.split())[-300:]
    return EnvironmentLostError(f"the runner's {name} {how}{f': {words}' if words else ''}")


async def run_hook(name: str, command: str, place: JobPlace, *, work_dir: str) -> str:
    """Its output; EnvironmentLostError when it fails or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=os.environ | hook_variables(place, work_dir=work_dir),
            start_new_session=True,
        )
    except OSError as error:
        raise hook_failed(name, f"cannot be started: {error.strerror}", "") from error
    kept = bytearray()
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            await _read(process, kept)
            code = await process.wait()
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await reap(process)
        if not isinstance(error, TimeoutError):
            raise
        raise hook_failed(name, f"took more than {HOOK_SECONDS:.0f} s", kept.decode(errors="replace")) from None
    output = kept.decode(errors="replace")
    if code != 0:
        raise hook_failed(name, f"ended with {code}", output)
    return output


async def _read(process: asyncio.subprocess.Process, kept: bytearray) -> None:
    assert process.stdout is not None
    while data := await process.stdout.read(OUTPUT_BYTES):
        kept += data
        del kept[:-OUTPUT_BYTES]
