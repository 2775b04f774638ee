"""What a call over each boundary costs that a plugin could be behind: `python -m tests.bench.boundaries`.

The same plugin, a table of a hundred machines, is asked for all of them: as an object, as a program that speaks gRPC
(ours, and upstream's Go one where it has been built), as a service that speaks HTTP over a socket, and as a program
that is started for every call. Figures of one run are to be compared; decision 0021 has them. No time is asserted.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from tests.bench.http_calls import shown

from remuda.fleeting import InProcess, Settings
from remuda.fleeting.host import HostedGroup
from remuda.testing.instance_groups import TableGroup, a_plugin

MACHINES = 100
CALLS = 200
SLOW_CALLS = 20
GO_PLUGIN = Path("build/interop/fleeting-plugin-dummy")
ANSWER = json.dumps({f"machine-{number}": "running" for number in range(MACHINES)})

Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def an_object() -> AsyncIterator[Call]:
    group = InProcess(TableGroup())
    await group.init({"max_size": MACHINES, "accepts": MACHINES}, Settings())
    await group.increase(MACHINES)
    yield group.update


@asynccontextmanager
async def a_process(program: str, config: dict[str, object]) -> AsyncIterator[Call]:
    group = HostedGroup(program)
    try:
        await group.init(config, Settings())
        await group.increase(MACHINES)
        yield group.update
    finally:
        await group.close()


@asynccontextmanager
async def a_service(folder: Path) -> AsyncIterator[Call]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=ANSWER, content_type="application/json")

    app = web.Application()
    app.router.add_get("/instances", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    path = str(folder / "http")
    await web.UnixSite(runner, path).start()
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=path)) as session:

        async def call() -> object:
            async with session.get("http://plugin/instances") as found:
                return await found.json()

        yield call
    await runner.cleanup()


@asynccontextmanager
async def a_program_a_call(folder: Path, first_line: str, text: str) -> AsyncIterator[Call]:
    program = folder / f"driver-{Path(first_line).name}"
    program.write_text(f"#!{first_line}\n{text}\n")
    program.chmod(0o755)

    async def call() -> object:
        process = await asyncio.create_subprocess_exec(program, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        return json.loads(out)

    yield call


async def figures() -> None:
    """All boundaries, one after the other."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config: dict[str, object] = {"max_size": MACHINES, "accepts": MACHINES}
        base = await measured("an object in the same process", an_object(), CALLS, None)
        python = str(a_plugin(folder, TableGroup))
        await measured("gRPC to a program in Python", a_process(python, config), CALLS, base)
        if GO_PLUGIN.exists():
            go = a_process(str(GO_PLUGIN.absolute()), {"MaxSize": MACHINES})
            await measured("gRPC to a program in Go", go, CALLS, base)
        await measured("HTTP over a socket, client and server in one process", a_service(folder), CALLS, base)
        shell = a_program_a_call(folder, "/bin/sh", f"echo '{ANSWER}'")
        await measured("a shell script started for each call", shell, SLOW_CALLS, base)
        script = a_program_a_call(folder, sys.executable, f"import asyncio, json, ssl\nprint('''{ANSWER}''')")
        await measured("a Python program started for each call", script, SLOW_CALLS, base)


async def measured(name: str, boundary: object, calls: int, base: float | None) -> float:
    """Milliseconds of a call, the middle one of many; and how long it takes until the first could be made."""
    began = time.perf_counter()
    async with boundary as call:  # type: ignore[attr-defined]
        ready = time.perf_counter() - began
        took = []
        for _ in range(calls):
            start = time.perf_counter()
            await call()
            took.append((time.perf_counter() - start) * 1000)
    middle = statistics.median(took)
    times = "" if base is None else f", {middle / base:.0f} times an object's"
    shown(name, f"{middle:.3f} ms", f"ready after {ready * 1000:.0f} ms{times}")
    return middle


if __name__ == "__main__":
    sys.stdout.write(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    asyncio.run(figures())
