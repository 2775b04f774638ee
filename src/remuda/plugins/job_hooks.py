"""Runs the operator's hooks `before_job` and `after_job` of `[runners.remuda]` on this machine.

They run as the user of the manager or plugin, outside the job, and their output goes to the manager's log. A failing
`before_job` fails the job before its own commands run. Environments on other machines run the hooks on those machines.
"""

import asyncio
import os
import signal
from contextlib import suppress
from typing import Protocol

from remuda.lib.processes import reap

HOOK_SECONDS = 600.0
OUTPUT_BYTES = 64 * 1024
"""Bytes kept of a hook's output, from its end."""


class HookPlace(Protocol):
    """The values of a job that its hooks get as environment variables."""

    @property
    def key(self) -> str: ...
    @property
    def runner(self) -> str: ...
    @property
    def slot(self) -> int: ...
    @property
    def project(self) -> str: ...


def hook_variables(place: HookPlace, *, work_dir: str) -> dict[str, str]:
    return {
        "REMUDA_JOB": place.key.partition("-")[0],
        "REMUDA_RUNNER": place.runner,
        "REMUDA_SLOT": str(place.slot),
        "REMUDA_PROJECT": place.project,
        "REMUDA_WORK_DIR": work_dir,
    }


def describe_failure(name: str, how: str, output: str) -> str:
    """Error text with the end of the hook's output. `how`: what happened, such as "ended with 1"."""
    words = " ".join(output.split())[-300:]
    return f"the runner's {name} {how}{f': {words}' if words else ''}"


async def run_hook(name: str, command: str, place: HookPlace, *, work_dir: str, error_type: type[Exception]) -> str:
    """Run a hook and return the end of its output; '' if `command` is empty. Raises `error_type` if it fails or takes
    longer than `HOOK_SECONDS`."""
    if not command:
        return ""
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
        raise error_type(describe_failure(name, f"cannot be started: {error.strerror}", "")) from error
    output = bytearray()
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            await _read(process, output)
            code = await process.wait()
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await reap(process)
        if not isinstance(error, TimeoutError):
            raise
        how = f"took more than {HOOK_SECONDS:.0f} s"
        raise error_type(describe_failure(name, how, output.decode(errors="replace"))) from None
    text = output.decode(errors="replace")
    if code != 0:
        raise error_type(describe_failure(name, f"ended with {code}", text))
    return text


async def _read(process: asyncio.subprocess.Process, output: bytearray) -> None:
    assert process.stdout is not None
    while data := await process.stdout.read(OUTPUT_BYTES):
        output += data
        del output[:-OUTPUT_BYTES]
