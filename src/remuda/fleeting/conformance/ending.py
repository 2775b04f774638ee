"""Conformance checks that a plugin's process ends: on the call Shutdown, and when its host dies."""

import asyncio
import os
import signal
import sys
from contextlib import closing, suppress

from remuda.fleeting.conformance.life import Life, need
from remuda.fleeting.conformance.values import Checks, FailedError
from remuda.fleeting.handshake import environment, read_handshake
from remuda.fleeting.process import END_SECONDS
from remuda.lib.processes import reap
from remuda.lib.socket_folder import SocketFolder
from remuda.lib.waiting import wait_for_event
from remuda.plugins import exec_plugin
from remuda.plugins.process import START_SECONDS

CHECKS = Checks()
ORPHAN_SECONDS = 10.0
_HOST = """
import subprocess, sys, os, time
words = [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), sys.argv[2]]
plugin = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          start_new_session=True)
print(plugin.pid, flush=True)
print(plugin.stdout.readline().decode(errors="replace").strip(), flush=True)
time.sleep(3600)
"""
"""A host that starts a plugin and waits to be killed."""


@CHECKS.add(
    "ends after Shutdown",
    expected=f"after GRPCController.Shutdown it ends with 0 within {END_SECONDS:.0f} s",
    to_do="serve plugin.GRPCController beside the instance group, answer, and exit; hosts kill it otherwise",
)
async def _end_on_shutdown(life: Life) -> None:
    await life.start()  # without Init, which has a check of its own
    assert life.process is not None
    await life.end()
    if not await wait_for_event(life.process.ended, within_seconds=life.trial.end_seconds):
        raise FailedError(f"it was still there {life.trial.end_seconds:.0f} s after GRPCController.Shutdown")
    need(life.process.exit_code == 0, f"it ended with {life.process.exit_code}")


@CHECKS.add(
    "ends with its host",
    expected=f"it ends within {ORPHAN_SECONDS:.0f} s after its host was killed",
    to_do="if the program is a script that starts the plugin, let it `exec` it; "
    "else check the parent's process id, and exit when it changes",
)
async def _end_with_host(life: Life) -> None:
    with closing(SocketFolder()) as folder:
        host = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _HOST, exec_plugin.__file__, life.trial.program),
            env=environment(os.environ, sockets=folder.path),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        assert host.stdout is not None
        pid = 0
        try:
            try:
                async with asyncio.timeout(START_SECONDS):
                    pid = int(await host.stdout.readline())
                    line = (await host.stdout.readline()).decode(errors="replace")
            except (ValueError, TimeoutError):  # no number, a line without end, nothing at all
                raise FailedError("started again it printed no handshake") from None
            handshake = read_handshake(line)
            host.kill()
            await reap(host)
            await _wait_until_closed(handshake.network, handshake.address)
        finally:
            with suppress(ProcessLookupError):
                host.kill()
            await reap(host)
            with suppress(ProcessLookupError):
                if pid:
                    os.killpg(pid, signal.SIGKILL)


async def _wait_until_closed(network: str, address: str) -> None:
    """Wait until no process listens at the address (`network`: unix or tcp). Raises FailedError if one still does after
    `ORPHAN_SECONDS`."""
    name, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(ORPHAN_SECONDS):
            while True:
                try:
                    if network == "unix":
                        _, writer = await asyncio.open_unix_connection(address)
                    else:
                        _, writer = await asyncio.open_connection(name.strip("[]"), int(port))
                except OSError:
                    return
                writer.close()
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise FailedError(f"{ORPHAN_SECONDS:.0f} s after its host was killed it was still listening") from None
