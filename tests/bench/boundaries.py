"""The cost of a plugin call for each way to connect a plugin: `python -m tests.bench.boundaries`.

The same call, which lists a hundred machines, goes to an object, to a gRPC process (ours, and upstream's in Go if it is
built), to an HTTP service on a socket, and to a program that is started for every call. Compare figures of one run
only; decision 0021 has them. No time is asserted.
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
from tests.bench.http_calls import print_figure

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
async def object_call() -> AsyncIterator[Call]:
    group = InProcess(TableGroup())
    await group.init({"max_size": MACHINES, "accepts": MACHINES}, Settings())
    await group.increase(MACHINES)
    yield group.update


@asynccontextmanager
async def process_call(program: str, config: dict[str, object]) -> AsyncIterator[Call]:
    group = HostedGroup(program)
    try:
        await group.init(config, Settings())
        await group.increase(MACHINES)
        yield group.update
    finally:
        await group.close()


@asynccontextmanager
async def service_call(folder: Path) -> AsyncIterator[Call]:
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
            async with session.get("http://plugin/instances") as response:
                return await response.json()

        yield call
    await runner.cleanup()


@asynccontextmanager
async def program_call(folder: Path, first_line: str, text: str) -> AsyncIterator[Call]:
    program = folder / f"driver-{Path(first_line).name}"
    program.write_text(f"#!{first_line}\n{text}\n")
    program.chmod(0o755)

    async def call() -> object:
        process = await asyncio.create_subprocess_exec(program, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        return json.loads(out)

    yield call


async def measure_all() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config: dict[str, object] = {"max_size": MACHINES, "accepts": MACHINES}
        base = await measure("an object in the same process", object_call(), CALLS, None)
        python = str(a_plugin(folder, TableGroup))
        await measure("gRPC to a program in Python", process_call(python, config), CALLS, base)
        if GO_PLUGIN.exists():
            go = process_call(str(GO_PLUGIN.absolute()), {"MaxSize": MACHINES})
            await measure("gRPC to a program in Go", go, CALLS, base)
        await measure("HTTP over a socket, client and server in one process", service_call(folder), CALLS, base)
        shell = program_call(folder, "/bin/sh", f"echo '{ANSWER}'")
        await measure("a shell script started for each call", shell, SLOW_CALLS, base)
        script = program_call(folder, sys.executable, f"import asyncio, json, ssl\nprint('''{ANSWER}''')")
        await measure("a Python program started for each call", script, SLOW_CALLS, base)


async def measure(name: str, boundary: object, calls: int, base: float | None) -> float:
    """Print the median time of a call and the time until the plugin is ready. Returns the median in milliseconds."""
    began = time.perf_counter()
    async with boundary as call:  # type: ignore[attr-defined]
        ready = time.perf_counter() - began
        took = []
        for _ in range(calls):
            start = time.perf_counter()
            await call()
            took.append((time.perf_counter() - start) * 1000)
    median = statistics.median(took)
    times = "" if base is None else f", {median / base:.0f} times an object's"
    print_figure(name, f"{median:.3f} ms", f"ready after {ready * 1000:.0f} ms{times}")
    return median


if __name__ == "__main__":
    sys.stdout.write(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    asyncio.run(measure_all())
