"""Benchmarks of the whole stack (`make bench`), each with a reference of the same run. `make bench PARTS=...` selects.

Because machines are noisy, compare ratios, not times. Nothing here asserts a time; docs/performance.md has the figures.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench.decisions import decisions
from tests.bench.held_polls import latency
from tests.bench.held_polls import memory as polls_memory
from tests.bench.http_calls import bench_folder, memory_of, print_figure
from tests.bench.lifecycles import lifecycles
from tests.bench.local_run import local_run
from tests.bench.log_page import log_page
from tests.bench.manager import manager_figures
from tests.bench.pipeline import compile_large
from tests.bench.pipeline_page import pipeline_page
from tests.bench.plan import plans
from tests.bench.steps import steps

from remuda.testing.client import first_pipeline, new_project, wait_for
from remuda.testing.lab import Lab

AT_A_TIME = 20
NOOP_JOBS = 200
START_SAMPLES = 60
SLEEPERS = 500

MANY = """
many:
  parallel: {jobs}
  variables: {{GIT_STRATEGY: none}}
  script: ["{command}"]
"""
ONE = """
one:
  variables: {GIT_STRATEGY: none}
  script: [":"]
"""


def bare_spawns() -> float:
    """Processes a second that plain asyncio starts and reaps: the median of five rounds after a warm-up round."""
    rounds = [asyncio.run(spawn_many(500)) for _ in range(6)]
    return statistics.median(rounds[1:])


async def spawn_many(count: int) -> float:
    """Start processes, as many at a time as the stack runs jobs. Returns processes a second."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def spawn() -> None:
        async with gate:
            process = await asyncio.create_subprocess_exec("/bin/true")
            await process.wait()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(spawn())
    return count / (time.perf_counter() - began)


def seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def noop_jobs(folder: Path) -> None:
    """Measure jobs that do nothing, through cell, manager and agent."""
    spawns = bare_spawns()
    with Lab(folder / "noop", concurrent=AT_A_TIME) as lab:
        project = new_project(lab, "noop", MANY.format(jobs=NOOP_JOBS, command=":"))
        pipeline = first_pipeline(lab, project)
        wait_for(lab, pipeline, 300)
        jobs = pipeline.jobs.list(get_all=True)
        took = max(seconds(job.finished_at) for job in jobs) - min(seconds(job.created_at) for job in jobs)
    rate = NOOP_JOBS / took
    print_figure("bare spawn loop", f"{spawns:.0f}/s", f"{AT_A_TIME} at a time")
    print_figure("no-op jobs through the whole stack", f"{rate:.1f}/s", f"{NOOP_JOBS} jobs, {AT_A_TIME} at a time")
    print_figure("  ratio to the bare spawn loop", f"{rate / spawns:.4f}")


def start_latency(folder: Path) -> None:
    """Measure the time from pending to the manager's acknowledgement, on an idle system."""
    waits: list[float] = []
    with Lab(folder / "start", concurrent=2) as lab:
        project = new_project(lab, "start", ONE)
        wait_for(lab, first_pipeline(lab, project))
        for _ in range(START_SAMPLES):
            pipeline = project.pipelines.create({"ref": "main"})
            wait_for(lab, pipeline)
            job: Any = pipeline.jobs.list(get_all=False)[0]
            waits.append(float(job.queued_duration))
    spawn = 1 / bare_spawns()
    waits.sort()
    p50, p99 = statistics.median(waits), waits[min(len(waits) - 1, round(len(waits) * 0.99))]
    print_figure("enqueue to start, p50", f"{p50 * 1000:.1f} ms", f"{p50 / spawn:.1f} bare spawns")
    print_figure("enqueue to start, p99", f"{p99 * 1000:.1f} ms", f"{p99 / spawn:.1f} bare spawns")


def memory(folder: Path) -> None:
    """Measure memory of cell, manager and agent, idle and with many sleeping jobs."""

    def sizes() -> dict[str, int]:
        cell, manager = lab.cell.process, lab.manager.process
        assert cell is not None
        assert manager is not None
        return {
            "cell": memory_of(cell.pid),
            "manager": memory_of(manager.pid),
            "agent": sum(memory_of(pid) for pid in lab.agent_pids()),
            "standby process": sum(memory_of(pid) for pid in lab.standby_pids()),
        }

    bare = subprocess.Popen([sys.executable, "-c", "import asyncio, sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    time.sleep(1)
    reference = memory_of(bare.pid)
    bare.communicate()
    with Lab(folder / "memory", concurrent=SLEEPERS) as lab:
        project = new_project(lab, "sleepers", ONE)
        wait_for(lab, first_pipeline(lab, project))
        at_rest = sizes()
        started = lab.folder / "started"
        pipelines = []
        for number, share in enumerate([100] * (SLEEPERS // 100)):
            text = MANY.format(jobs=share, command=f"echo >> {started}; sleep 600")
            action = {"action": "update", "file_path": ".gitlab-ci.yml", "content": f"{text}# {number}\n"}
            project.commits.create({"branch": "main", "commit_message": "Sleep more", "actions": [action]})
            pipelines.append(project.pipelines.list(get_all=False)[0])
        lab.wait_until(lambda: started.exists() and started.stat().st_size == SLEEPERS, f"{SLEEPERS} scripts run", 300)
        busy = sizes()
        for pipeline in pipelines:
            pipeline.cancel()
    print_figure("a bare Python with asyncio", f"{reference / 2**20:.1f} MiB", "reference")
    for part, size in at_rest.items():
        grown = busy[part]
        print_figure(f"{part} at rest", f"{size / 2**20:.1f} MiB", f"{size / reference:.1f} of the reference")
        print_figure(
            f"{part} with {SLEEPERS} sleeping jobs",
            f"{grown / 2**20:.1f} MiB",
            f"{(grown - size) / SLEEPERS / 1024:.0f} KiB a job",
        )


PARTS: dict[str, Callable[[Path], None]] = {
    "pipeline": lambda folder: compile_large(print_figure),
    "run": lambda folder: local_run(folder / "run", print_figure),
    "steps": lambda folder: steps(folder / "steps", print_figure),
    "jobs": noop_jobs,
    "start": start_latency,
    "memory": memory,
    "manager": lambda folder: manager_figures(folder / "manager", print_figure),
    "lifecycles": lambda folder: lifecycles(folder, print_figure),
    "latency": lambda folder: latency(folder, print_figure),
    "polls": lambda folder: polls_memory(folder, print_figure),
    "decisions": lambda folder: decisions(print_figure),
    "plan": lambda folder: plans(print_figure),
    "pipeline_page": lambda folder: pipeline_page(folder, print_figure),
    "log_page": log_page,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", choices=[*PARTS, []], help="only these; without any, all")
    chosen = options.parse_args().parts or list(PARTS)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    with bench_folder() as folder:
        for part in chosen:
            PARTS[part](folder)


if __name__ == "__main__":
    main()
