"""One run of a pipeline through a whole platform that exists only for it.

Decided here: the order of things: snapshot, start, deliver, follow, sum up, stop. What the platform is made of is in
`embedded`, what it is given in `delivery`, what is shown in `view`, `screen` and `report`. `run` is the caller.

Invariant: however a run ends, short of kill -9, no process of it is left.
"""

import asyncio
import json
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.cli.exits import CommandError
from remuda.localrun.cell_process import CellProcess, Task
from remuda.localrun.isolation import closed_to_others
from remuda.localrun.startup import AGENT_IDLE_SECONDS, Started, manager_data, settled
from remuda.localrun.upload import Choice, Package, deliver, pack, places

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings
    from remuda.cli.render.screen import Screen
    from remuda.localrun.compilation import Ready
    from remuda.localrun.embedded import Cell
    from remuda.localrun.follow import Follower
    from remuda.localrun.interrupts import Interrupts
    from remuda.localrun.junit import TestReport
    from remuda.localrun.report import Outcome
    from remuda.localrun.view import JobView, RunView
    from remuda.pipeline import Pipeline
    from remuda.wire.user_client import UserClient

TAIL_LINES = 30
LOG_NAME = "remuda.log"
"""What the services log, in the platform's folder."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run's options, checked and resolved before anything starts."""

    ready: "Ready"
    pipeline: "Pipeline"
    """What was chosen of it."""
    compared: frozenset[str]
    """Refs that its rules compare with."""
    choice: Choice
    at_once: int
    output: str = "text"
    shows_logs: bool = False
    artifacts: Path | None = None
    cache: Path | None = None
    """None: caches end with the run."""
    has_own_cache: bool = False
    """Whether the user has named that folder."""
    manual: frozenset[str] = frozenset()
    play_manual: bool = False
    keeps_builds: bool = False
    """Failed jobs leave their working directories."""
    borrows: bool = True
    """The platform ends with the run. So its cell uses the objects of the snapshot and so of the user's repository,
    and nothing of it waits for the disk."""

    def plays(self, job: "JobView") -> bool:
        """Whether a job that waits for a person is started."""
        return self.play_manual or job.name in self.manual


def _links(plan: Plan, started: Started) -> Path | None:
    """Where jobs find the repositories; None where they ask the cell, because they could not read them."""
    return started.folder / "repositories" if plan.borrows and not started.isolation.run_as else None


def _cache(plan: Plan, run_as: str) -> Path | None:
    """Where caches are kept. Jobs of another user cannot go to those in this user's home, and go through all others."""
    if plan.cache is None or not run_as:
        return plan.cache
    is_good = plan.has_own_cache or closed_to_others(plan.cache) is None
    place = plan.cache if is_good else Path("/var/cache/remuda/run") / plan.cache.name
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o011)
    return place


def _log_level() -> str:
    return os.environ.get("REMUDA_LOG_LEVEL", "warning")


async def run(plan: Plan, started: Started, process: CellProcess) -> "Outcome":
    """From a folder's files to a pipeline that is over. The process is the one that is going to be the cell."""
    from remuda.cli.render.screen import GuardedScreen, screen_for
    from remuda.cli.signals import STOPPING, handled
    from remuda.localrun.interrupts import Interrupts

    interrupts, folder, own = Interrupts(), started.folder, started.own
    with (
        handled(dict.fromkeys(STOPPING, interrupts.arrive)),
        GuardedScreen(screen_for(plan.output), on_lost=interrupts.arrive) as screen,
    ):
        async with interrupts.stopping(), asyncio.TaskGroup() as group:
            packing = group.create_task(asyncio.to_thread(pack, plan.ready, plan.compared, own), name="snapshot")
            # git works while the parts of the platform are imported.
            await asyncio.sleep(0)
            from remuda.lib.files import open_private
            from remuda.localrun.service_log import service_log
            from remuda.telemetry import logs

            _check_room(folder)
            with open_private(folder / LOG_NAME) as log:
                logs.configure(stream=service_log(log, screen.say), level=_log_level())
                objects = [place / "objects" for place in places(plan.ready, own)]
                task = Task(
                    folder=folder,
                    settings=_settings(plan, folder, objects, _links(plan, started)),
                    log=folder / LOG_NAME,
                    log_level=_log_level(),
                    ends_with_run=plan.borrows,
                )
                async with process.serving(task, screen.say) as cell:
                    outcome = await _through_platform(plan, started, cell, packing, screen, interrupts)
        if isinstance(screen.lost, BrokenPipeError):
            raise screen.lost
        return outcome


def _check_room(folder: Path) -> None:
    """Below the manager's own limit no job would ever start."""
    from remuda.manager.config.load import RemudaConfig

    free, least = shutil.disk_usage(folder).free, RemudaConfig().least_disk_bytes
    if free < least:
        raise CommandError(
            f"only {free >> 20} MiB are free at {folder}, a run needs {least >> 20}; free some space, or "
            "choose another place with --data or TMPDIR"
        )


async def _through_platform(
    plan: Plan,
    started: Started,
    cell: "Cell",
    packing: asyncio.Task[tuple[Package, list[Package]]],
    screen: "Screen",
    interrupts: "Interrupts",
) -> "Outcome":
    """Start the rest of the platform, run the pipeline in it, stop it."""
    from remuda.lib.clock import SystemClock
    from remuda.lib.files import forgo_disk
    from remuda.localrun import local_agent
    from remuda.localrun.embedded import managing
    from remuda.localrun.follow import Follower
    from remuda.manager.config.load import CustomBuildDirConfig, ManagerConfig, RemudaConfig, RunnerConfig

    own, others = await packing
    if own.snapshot.remark:
        screen.say(own.snapshot.remark)
    tags = sorted({tag for job in plan.pipeline.jobs for tag in job.tags})
    data, news = manager_data(started.folder), asyncio.Event()
    links, run_as = _links(plan, started), started.isolation.run_as
    if plan.borrows:
        forgo_disk()
    async with asyncio.TaskGroup() as group:
        delivering = group.create_task(
            deliver(cell, own, others, plan.ready, plan.choice, links=links), name="delivery"
        )
        runner = await cell.client.add_instance_runner("remuda run", tags=tags)
        section = RunnerConfig(
            name="remuda run",
            url=cell.url,
            token=runner.token,
            executor="shell",
            request_concurrency=min(plan.at_once, 4),
            cache_dir=str(cache) if (cache := _cache(plan, run_as)) else "",
            # Everything is on this machine: git need not go through the cell.
            clone_url=links.as_uri() if links else "",
            custom_build_dir=CustomBuildDirConfig(enabled=True),
            remuda=RemudaConfig(run_as=run_as),
        )
        config = ManagerConfig(concurrent=plan.at_once, runners=(section,))
        try:
            async with managing(
                config,
                data,
                agent_idle_seconds=AGENT_IDLE_SECONDS,
                agent_pid=started.agent_pid,
                around_agent=started.around_agent,
                keep_builds=plan.keeps_builds,
                on_job_over=news.set,
            ):
                pipeline = await delivering
                settled()
                interrupts.hold()
                follower = Follower(
                    cell.client,
                    pipeline.id,
                    SystemClock(),
                    runner=runner,
                    tags=tags,
                    plays=plan.plays,
                    news=news,
                )
                return await _followed(plan, follower, cell.client, screen, interrupts)
        finally:
            await local_agent.close(local_agent.data_of(data))


def _settings(plan: Plan, folder: Path, objects: list[Path], links: Path | None) -> "CellSettings":
    """`objects` is where those of the snapshots are going to be."""
    from remuda.cell.settings import CellSettings

    told = plan.ready.facts.predefined
    return CellSettings(
        data=folder / "cell",
        port=0,
        # A cancel reaches a job with the answer to its next piece of log; nobody should wait for that for long here.
        trace_interval_seconds=1,
        remote_includes=plan.ready.remotes,
        component_hosts=tuple({told[name] for name in ("CI_SERVER_HOST", "CI_SERVER_FQDN") if name in told}),
        borrowed_objects=tuple(objects) if plan.borrows else (),
        links=links,
        # The pipeline is asked for, with all that is known about it; pushes only bring commits.
        pipelines_per_push=0,
    )


async def _followed(
    plan: Plan, follower: "Follower", client: "UserClient", screen: "Screen", interrupts: "Interrupts"
) -> "Outcome":
    """Follow the pipeline to its end, and sum it up."""
    from remuda.localrun import report
    from remuda.localrun.artifacts import collect

    count = report.counted(len(plan.pipeline.jobs), "job")
    screen.say(f"{plan.ready.folder}: {count}, up to {plan.at_once} at once")
    view = await follower.follow(screen, interrupts)
    outcome = report.Outcome(
        view=view,
        tails=await _tails(client, view, whole=plan.shows_logs),
        has_whole_logs=plan.shows_logs,
        tests=await _tests(client, view),
        interrupted=interrupts.asked.is_set(),
    )
    if plan.artifacts is not None:
        await collect(client, view, plan.artifacts)
    screen.finish(outcome)
    if plan.output == "json":
        print(json.dumps(report.document(outcome), indent=2), flush=True)
    return outcome


async def _tails(client: "UserClient", view: "RunView", *, whole: bool) -> dict[int, list[str]]:
    """The ends of the logs of failed jobs, or the whole logs of all that began."""
    from remuda.cli.render.log_text import tail

    wanted = [job.id for _, _, job in view.all_jobs() if job.started_at is not None and (whole or job.has_failed())]
    return {job_id: tail((await client.trace(job_id)).data, None if whole else TAIL_LINES) for job_id in wanted}


async def _tests(client: "UserClient", view: "RunView") -> "list[TestReport]":
    from remuda.localrun.artifacts import report_of
    from remuda.localrun.junit import read

    return [
        read(name, await report_of(client, pipeline, job, "junit"))
        for name, pipeline, job in view.all_jobs()
        if any(file.type == "junit" for file in job.files)
    ]
