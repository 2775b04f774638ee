"""Conformance checks of a plugin's program: version, start without a host, handshake, missing or wrong settings."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from remuda.fleeting.conformance.life import Life, need
from remuda.fleeting.conformance.values import Checks, FailedError, NotedError
from remuda.fleeting.errors import PermanentError, TemporaryError
from remuda.fleeting.handshake import COOKIE
from remuda.fleeting.program_info import SECONDS, ask_version, by_hand
from remuda.fleeting.references import parse_version
from remuda.lib.processes import reap
from remuda.plugins.exec_plugin import explain_start_error

CHECKS = Checks()


@CHECKS.add(
    "prints its version",
    expected="`PROGRAM version` prints the lines Name: and Version: and ends with 0",
    to_do="answer `version`, `-version` and `--version` in this form, as the SDKs do; tools ask for it before a start",
)
async def _version(life: Life) -> None:
    info = await asyncio.to_thread(ask_version, Path(life.trial.program))
    if parse_version(info.version) is None:
        raise NotedError(
            f"its version is {info.version!r}",
            to_do="use a version such as 1.2.3; `remuda plugin install` refuses others",
        )


@CHECKS.add(
    "refuses to serve without a host",
    expected="started by hand it ends with an error, and prints nothing to stdout",
    to_do=f"before anything else check that {COOKIE} has its value; if not, write that to stderr, and exit with 1",
)
async def _by_hand(life: Life) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            life.trial.program,
            env=by_hand(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise FailedError(f"it cannot be started: {explain_start_error(life.trial.program, error)}") from None
    try:
        async with asyncio.timeout(SECONDS):
            printed, _ = await process.communicate()
    except TimeoutError:
        raise FailedError(f"it was still running after {SECONDS:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await reap(process)
    need(process.returncode != 0, "it ended with 0")
    need(not printed, f"it printed to stdout: {printed[:100]!r}")


@CHECKS.add(
    "handshake",
    expected="the first line on stdout is 1|0|unix|PATH|grpc| or 1|0|tcp|127.0.0.1:PORT|grpc|, within 60 s",
    to_do="listen first, then print the line and flush it; print nothing before it, and log to stderr",
    is_needed=True,
)
async def _handshake(life: Life) -> None:
    try:
        await life.start()
    except TemporaryError as error:
        if life.process is None or life.process.exit_code is None:
            raise
        raise FailedError(str(error), to_do="find out why it ended; its last output may say so") from error


@CHECKS.add(
    "no configuration",
    expected="Init with the configuration null works, or is an error that says what is missing",
    to_do="read null as an empty table; answer a mistake of the operator with an error, and do not end the process",
)
async def _no_config(life: Life) -> None:
    await life.start()
    try:
        await life.init(None)
    except (TemporaryError, PermanentError) as error:
        need(isinstance(error.__cause__, Exception) and str(error), "Init failed without a message")
    await _is_alive(life)


@CHECKS.add(
    "a wrong configuration",
    expected="Init with a configuration that is not a table is an error, and the plugin continues",
    to_do="check the configuration in Init, and answer with an error whose text names the setting",
)
async def _bad_config(life: Life) -> None:
    await life.start()
    try:
        await life.init("a configuration has to be a table, and this is a text")
    except (TemporaryError, PermanentError):
        await _is_alive(life)
    else:
        raise FailedError("Init accepted a text as configuration")


async def _is_alive(life: Life) -> None:
    if await life.has_died(wait=True):
        assert life.process is not None
        raise FailedError(life.words(f"ended with {life.process.exit_code}"))
