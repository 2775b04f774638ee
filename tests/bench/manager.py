"""Compares a manager with the real gitlab-runner and with raw references: no-op jobs, sleeping jobs, a long log.

Both runners work in turns for the same cell, with the shell executor and the same `concurrent` and
`request_concurrency`. A control group (cpuacct of version 1, which needs root) measures the processor time of a runner
and of everything that it starts, including processes that have ended. `make interop` builds the gitlab-runner; without
it its figures are omitted. `python -m tests.bench.manager`.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.http_calls import (
    Caller,
    CellAddress,
    bench_folder,
    memory_of,
    new_project,
    print_figure,
    serve_cell,
)
from tests.bench.steps import bare_spawns, raw_stream

from remuda.testing.lab import name_of, processes
from remuda.testing.waiting import wait_until

CONCURRENT = 50
AT_A_TIME = 20
NOOP_JOBS = 300
HELD = (1000, 5000)
MOST_JOBS_PER_PIPELINE = 200
IDLE_SECONDS = 10
LOG_BYTES = 128 * 1024 * 1024
LONG_LOG_BYTES = 1024 * 1024 * 1024
LINE = "the build goes on and on, line after line after line, and says what it does to whoever may read it\n"
SETTINGS = {"REMUDA_TRACE_LIMIT_BYTES": str(4 << 30)}
PROGRAM = Path(__file__).parents[2] / "build" / "interop" / "gitlab-runner"
_ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")
_WAIT_SECONDS = 600.0

Show = Callable[..., None]


class Runner:
    """A runner process and all processes that it starts. It runs while the `with` block does."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self._command = command
        self._folder = folder
        self._group = _ACCOUNTS / f"remuda-bench-{os.getpid()}-{name}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Runner":
        self._group.mkdir()
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        enter = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._group / "cgroup.procs")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*enter, *self._command],
                env={"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        while pids := self._pids():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        self._process.wait()
        self._group.rmdir()

    def processor_seconds(self) -> float:
        """Processor time of all processes so far."""
        return int((self._group / "cpuacct.usage").read_text()) / 1e9

    def _pids(self) -> list[int]:
        return [int(pid) for path in self._group.rglob("cgroup.procs") for pid in path.read_text().split()]

    def parts(self) -> dict[str, int]:
        """Pids of the long-lived processes by name: the runner and, for a manager, its agent."""
        assert self._process is not None
        pids = {self.name: self._process.pid}
        ours = set(self._pids())
        for pid, words in processes():
            if pid in ours and "remuda.steps" in words and "serve" in words and name_of(pid) == "python":
                pids["agent"] = pid
        return pids


def manager(folder: Path, url: str, token: str, concurrent: int = CONCURRENT) -> Runner:
    command = [sys.executable, "-m", "remuda", "manager", "run", "--config", str(folder / "config.toml")]
    return Runner("manager", [*command, "--data", str(folder / "data")], _configure(folder, url, token, concurrent))


def gitlab_runner(folder: Path, url: str, token: str, concurrent: int = CONCURRENT) -> Runner:
    command = [str(PROGRAM), "run", "--config", str(folder / "config.toml"), "--working-directory", str(folder)]
    return Runner("gitlab-runner", command, _configure(folder, url, token, concurrent))


def _configure(folder: Path, url: str, token: str, concurrent: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.toml"
    config.write_text(
        f'concurrent = {concurrent}\ncheck_interval = 1\nlog_level = "warning"\n\n[[runners]]\n'
        f'name = "bench"\nurl = "{url}"\ntoken = "{token}"\nexecutor = "shell"\nshell = "bash"\n'
        f'request_concurrency = {CONCURRENT}\noutput_limit = {4 << 20}\nbuilds_dir = "{folder}/builds"\n'
    )
    config.chmod(0o600)
    return folder


class Jobs:
    """Jobs with a unique tag, for one runner."""

    def __init__(self, cell: CellAddress, name: str) -> None:
        self._port = cell.port
        self._name = f"{name}{time.monotonic_ns()}"
        self.url = f"http://127.0.0.1:{cell.port}"

    def call(self, method: str, path: str, body: object = None) -> Any:
        return asyncio.run(self._call(method, path, body))

    async def _call(self, method: str, path: str, body: object) -> Any:
        caller = await Caller.connect(self._port)
        try:
            return await caller.api(method, path, body)
        finally:
            caller.close()

    def runner(self) -> tuple[int, str]:
        """Create a runner for these jobs only. Returns its id and its token."""
        body = {"runner_type": "instance_type", "run_untagged": False, "tag_list": self._name}
        runner = self.call("POST", "/api/v4/user/runners", body)
        return int(runner["id"]), str(runner["token"])

    def add(self, count: int, script: str) -> list[str]:
        """Create jobs in as few pipelines as possible. Returns the API paths of the pipelines."""
        paths = []
        while count:
            share = min(count, MOST_JOBS_PER_PIPELINE)
            count -= share
            parallel = f"  parallel: {share}\n" if share > 1 else ""
            text = f"many:\n{parallel}  tags: [{self._name}]\n  timeout: 3h\n  variables: {{GIT_STRATEGY: none}}\n"
            project = asyncio.run(self._project(f"{text}  script: ['{script}']\n"))
            path = f"/api/v4/projects/{project}/pipelines"
            paths.append(f"{path}/{self.call('GET', path)[0]['id']}")
        return paths

    async def _project(self, text: str) -> int:
        caller = await Caller.connect(self._port)
        try:
            return await new_project(caller, f"p{time.monotonic_ns()}", text)
        finally:
            caller.close()

    def finish(self, paths: list[str]) -> None:
        """Wait until all pipelines have succeeded."""
        for path in paths:
            wait_until(partial(self._is_over, path), f"the end of {path}", _WAIT_SECONDS)

    def _is_over(self, path: str) -> bool:
        status = self.call("GET", path)["status"]
        assert status in ("created", "pending", "running", "success"), status
        return bool(status == "success")


KINDS: Mapping[str, Callable[..., Runner]] = {"manager": manager, "gitlab-runner": gitlab_runner}


def _kinds() -> list[str]:
    return [name for name in KINDS if name == "manager" or PROGRAM.exists()]


def noop(folder: Path, cell: CellAddress, show: Show, rounds: int) -> None:
    """Print rates and processor time of jobs that do nothing."""
    rates: dict[str, list[float]] = {name: [] for name in _kinds()}
    costs: dict[str, list[float]] = {name: [] for name in _kinds()}
    for number in range(1, rounds + 1):
        for name in _kinds():
            jobs = Jobs(cell, name)
            _, token = jobs.runner()
            with KINDS[name](folder / f"noop-{name}-{number}", jobs.url, token) as runner:
                jobs.finish(jobs.add(CONCURRENT, ":"))
                paths, before, began = jobs.add(NOOP_JOBS, ":"), runner.processor_seconds(), time.perf_counter()
                jobs.finish(paths)
                took, used = time.perf_counter() - began, runner.processor_seconds() - before
            rates[name].append(NOOP_JOBS / took)
            costs[name].append(used / NOOP_JOBS)
            show(f"round {number}: no-op jobs, {name}", f"{rates[name][-1]:.1f}/s", f"{costs[name][-1] * 1e3:.1f} ms")
    show(f"no-op jobs, {CONCURRENT} at a time: manager", f"{median(rates['manager']):.1f}/s", "median")
    if "gitlab-runner" in rates:
        pairs = [ours / theirs for ours, theirs in zip(rates["manager"], rates["gitlab-runner"], strict=True)]
        show("  of gitlab-runner's rate", f"{median(pairs):.2f}", f"{min(pairs):.2f} to {max(pairs):.2f}")
        pairs = [ours / theirs for ours, theirs in zip(costs["manager"], costs["gitlab-runner"], strict=True)]
        show(
            "  processor time of a job, of gitlab-runner's",
            f"{median(pairs):.2f}",
            f"{min(pairs):.2f} to {max(pairs):.2f}",
        )


async def sleeping_spawns(count: int) -> float:
    """Processes a second that plain asyncio starts, all of which keep running, as the sleeping jobs do."""
    gate = asyncio.Semaphore(AT_A_TIME)
    started: list[asyncio.subprocess.Process] = []

    async def spawn() -> None:
        async with gate:
            started.append(await asyncio.create_subprocess_exec("sleep", "3000"))

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(spawn())
    rate = count / (time.perf_counter() - began)
    for process in started:
        process.kill()
    for process in started:
        await process.wait()
    return rate


def sleeping(folder: Path, cell: CellAddress, show: Show, count: int) -> None:
    """Print memory, idle processor time and start rate of jobs that sleep."""
    sleeping_rate = asyncio.run(sleeping_spawns(count))
    jobs = Jobs(cell, "held")
    runner_id, token = jobs.runner()
    started = folder / f"started-{count}"
    started.touch()
    with manager(folder / f"held-{count}", jobs.url, token, concurrent=count) as runner:
        jobs.finish(jobs.add(CONCURRENT, ":"))
        before = {name: memory_of(pid) for name, pid in runner.parts().items()}
        jobs.call("PUT", f"/api/v4/runners/{runner_id}", {"paused": True})
        jobs.add(count, f"echo >> {started}; exec sleep 3000")
        jobs.call("PUT", f"/api/v4/runners/{runner_id}", {"paused": False})
        wait_until(lambda: started.stat().st_size > 0, "the first job", _WAIT_SECONDS)
        began, first = time.perf_counter(), started.stat().st_size
        wait_until(lambda: started.stat().st_size == count, f"{count} jobs", _WAIT_SECONDS)
        rate = (count - first) / (time.perf_counter() - began)
        spawns = asyncio.run(bare_spawns(1000))
        time.sleep(IDLE_SECONDS)  # work that follows the start of jobs
        grown = {name: (memory_of(pid) - before[name]) / count / 1024 for name, pid in runner.parts().items()}
        used = runner.processor_seconds()
        time.sleep(IDLE_SECONDS)
        idle = (runner.processor_seconds() - used) / IDLE_SECONDS
    show(
        f"{count} sleeping jobs: memory of a job",
        f"{sum(grown.values()):.0f} KiB",
        str({k: round(v) for k, v in grown.items()}),
    )
    show("  processor while nothing happens", f"{idle * 100:.1f} %", "of one core")
    show(
        "  starts",
        f"{rate:.0f}/s",
        f"bare spawns of processes that are held {sleeping_rate:.0f}/s, that end {spawns:.0f}/s",
    )
    show("    of the bare spawns that are held, of those that end", f"{rate / sleeping_rate:.3f}, {rate / spawns:.3f}")


def log(folder: Path, cell: CellAddress, show: Show, rounds: int) -> None:
    """Print the throughput of a long log, from the job's process to the cell's store."""
    text, long_text = folder / "text", folder / "long"
    text.write_text(LINE * (LOG_BYTES // len(LINE)))
    long_text.write_text(LINE * (LONG_LOG_BYTES // len(LINE)))
    for number in range(1, rounds + 1):
        stream = asyncio.run(raw_stream(folder))
        show(f"round {number}: raw stream of the gRPC library", f"{stream / 1e6:.0f} MB/s")
        rates = {}
        for name in _kinds():
            jobs = Jobs(cell, name)
            _, token = jobs.runner()
            with KINDS[name](folder / f"log-{name}-{number}", jobs.url, token) as runner:
                jobs.finish(jobs.add(1, ":"))
                used = runner.processor_seconds()
                rates[name] = text.stat().st_size / _duration(jobs, text)
                used = runner.processor_seconds() - used
                show(f"  log of a job, {name}", f"{rates[name] / 1e6:.1f} MB/s", f"{used:.1f} s of the processor")
                if name == "manager" and number == 1:
                    grown = _memory_growth(runner, partial(_duration, jobs, long_text))
                    for part, size in grown.items():
                        show(f"  memory of the {part} for a log of 1 GiB", f"{size / 2**20:.0f} MiB", "more at most")
        show("  manager, of the raw stream", f"{rates['manager'] / stream:.2f}")
        if "gitlab-runner" in rates:
            show("  manager, of gitlab-runner", f"{rates['manager'] / rates['gitlab-runner']:.2f}")


def _duration(jobs: Jobs, text: Path) -> float:
    """Seconds of a job that prints the content of a file."""
    (path,) = jobs.add(1, f"cat {text}")
    jobs.finish([path])
    job = jobs.call("GET", f"{path}/jobs")[0]
    return _moment(job["finished_at"]) - _moment(job["started_at"])


def _moment(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def _memory_growth(runner: Runner, work: Callable[[], object]) -> dict[str, int]:
    """The largest growth of memory of each part of a runner while `work` runs."""
    parts = runner.parts()
    before = {name: memory_of(pid) for name, pid in parts.items()}
    for pid in parts.values():
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak to the present size
    peaks = {name: _peak_memory(pid) for name, pid in parts.items()}
    work()
    return {name: max(_peak_memory(pid) - peaks[name], memory_of(pid) - before[name]) for name, pid in parts.items()}


def _peak_memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def manager_figures(
    folder: Path, show: Show, *, part: str | None = None, rounds: int = 3, counts: Sequence[int] = HELD
) -> None:
    """Print all figures, or only those of one part."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _ACCOUNTS.is_dir() or os.geteuid() != 0:
        show("manager", "left out", "it takes root and control groups of version 1 to count what processes take")
        return
    if not PROGRAM.exists():
        show("gitlab-runner", "not there", "`make interop` builds it")
    with serve_cell(folder / "cell", settings=SETTINGS) as (cell,):
        if part in (None, "noop"):
            noop(folder, cell, show, rounds)
        if part in (None, "log"):
            log(folder, cell, show, rounds)
        for count in counts if part in (None, "held") else ():
            sleeping(folder, cell, show, count)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("part", nargs="?", choices=["noop", "log", "held"])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--held", type=int, nargs="*", default=list(HELD))
    chosen = options.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with bench_folder() as folder:
        manager_figures(folder, print_figure, part=chosen.part, rounds=chosen.rounds, counts=chosen.held)


if __name__ == "__main__":
    main()
