"""Runs one pipeline on a platform of its own: makes a snapshot of the folder, starts the platform, uploads, follows the
pipeline, prints a summary, stops. Invariant: however a run ends, except by SIGKILL, it leaves no process."""

import asyncio
import json
import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.lib.exits import CommandError
from remuda.localrun.cell_process import CellProcess, Task
from remuda.localrun.containers import ContainerWish
from remuda.localrun.isolation import find_closed_folder
from remuda.localrun.startup import AGENT_IDLE_SECONDS, Workspace, freeze_objects, manager_data
from remuda.localrun.upload import Choice, Package, deliver, pack, repository_paths

if TYPE_CHECKING:
    from remuda.cell.settings import CellSettings
    from remuda.localrun.compilation import PipelineFile
    from remuda.localrun.embedded import Cell
    from remuda.localrun.follow import Follower
    from remuda.localrun.interrupts import Interrupts
    from remuda.localrun.junit import TestReport
    from remuda.localrun.render.screen import Screen
    from remuda.localrun.report import Outcome
    from remuda.localrun.view import JobView, RunView
    from remuda.pipeline import Pipeline
    from remuda.wire.user_client import UserClient

TAIL_LINES = 30
LOG_NAME = "remuda.log"
"""The log file of the services, in the platform's folder."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, checked and resolved before any process starts."""

    file: "PipelineFile"
    pipeline: "Pipeline"
    """The compiled pipeline, with the chosen jobs only."""
    compared: frozenset[str]
    """Refs that its rules compare with (`compare_to`)."""
    choice: Choice
    at_once: int
    output: str = "text"
    shows_logs: bool = False
    follows: bool = False
    """Print the logs of all jobs while they run, also on a terminal."""
    artifacts: Path | None = None
    cache: Path | None = None
    """The folder for caches; None: caches are deleted after the run."""
    has_own_cache: bool = False
    """The user named the cache folder."""
    manual: frozenset[str] = frozenset()
    play_manual: bool = False
    keeps_builds: bool = False
    """Keep the working directories of failed jobs."""
    containers: ContainerWish = ContainerWish()
    borrows: bool = True
    """The platform's data is deleted after the run. Therefore its cell uses the git objects of the user's repository
    without copying them, and nothing is synced to disk."""

    def plays(self, job: "JobView") -> bool:
        return self.play_manual or job.name in self.manual


def _links(spec: RunSpec, workspace: Workspace) -> Path | None:
    """Return the folder in which the cell creates links to its repositories, for jobs to clone from. None if jobs clone
    over HTTP: if the platform's data is kept after the run, or jobs run as a user who cannot read the folder."""
    return workspace.folder / "repositories" if spec.borrows and not workspace.isolation.run_as else None


def _cache(spec: RunSpec, run_as: str) -> Path | None:
    """Return the folder for the caches of jobs, in /var/cache if the user `run_as` ('': the current one) cannot reach
    the default; None if the caches are deleted at the end of the run."""
    if spec.cache is None or not run_as:
        return spec.cache
    is_reachable = spec.has_own_cache or find_closed_folder(spec.cache) is None
    place = spec.cache if is_reachable else Path("/var/cache/remuda/run") / spec.cache.name
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o011)
    return place


def _log_level() -> str:
    return os.environ.get("REMUDA_LOG_LEVEL", "warning")


async def run_pipeline(spec: RunSpec, workspace: Workspace, process: CellProcess) -> "Outcome":
    """Run the pipeline to its end and print the summary. `process`: the child process that serves as the cell. Raises
    InterruptedRunError if it is interrupted before the pipeline exists, BrokenPipeError if its output was a pipe whose
    reader is gone."""
    from remuda.lib.signals import STOPPING, handle_signals
    from remuda.localrun.interrupts import Interrupts
    from remuda.localrun.render.screen import GuardedScreen

    interrupts, folder, scratch = Interrupts(), workspace.folder, workspace.scratch
    loop = asyncio.get_running_loop()

    def stop_soon() -> None:
        loop.call_soon_threadsafe(interrupts.arrive)

    with (
        handle_signals(dict.fromkeys(STOPPING, interrupts.arrive)),
        GuardedScreen(_choose_screen(spec), on_lost=stop_soon) as screen,
    ):
        async with interrupts.stop_on_interrupt(), asyncio.TaskGroup() as group:
            packing = group.create_task(asyncio.to_thread(pack, spec.file, spec.compared, scratch), name="snapshot")
            # git runs while the modules of the platform are imported.
            await asyncio.sleep(0)
            from remuda.lib.files import open_private
            from remuda.localrun.service_log import service_log
            from remuda.telemetry import logs

            _check_free_space(folder)
            with open_private(folder / LOG_NAME) as log:
                logs.configure(stream=service_log(log, screen.say), level=_log_level())
                objects = [path / "objects" for path in repository_paths(spec.file, scratch)]
                task = Task(
                    folder=folder,
                    settings=_settings(spec, folder, objects, _links(spec, workspace)),
                    log=folder / LOG_NAME,
                    log_level=_log_level(),
                    ends_with_run=spec.borrows,
                )
                async with process.serve(task, screen.say) as cell:
                    outcome = await _run_in_platform(spec, workspace, cell, packing, screen, interrupts)
        if isinstance(screen.lost, BrokenPipeError):
            raise screen.lost
        return outcome


def _choose_screen(spec: RunSpec) -> "Screen":
    from remuda.localrun.render.screen import screen_for

    has_one_job = len(spec.pipeline.jobs) == 1 and spec.pipeline.jobs[0].trigger is None
    return screen_for(spec.output, follows=spec.follows, has_one_job=has_one_job, environ=os.environ)


def _check_free_space(folder: Path) -> None:
    """Raise CommandError if the disk has so little free space that the manager would start no job."""
    from remuda.manager.config.values import RemudaConfig

    free, least = shutil.disk_usage(folder).free, RemudaConfig().least_disk_bytes
    if free < least:
        raise CommandError(
            f"only {free >> 20} MiB are free at {folder}, a run needs {least >> 20}; free some space, or "
            "choose another place with --data or TMPDIR"
        )


async def _run_in_platform(
    spec: RunSpec,
    workspace: Workspace,
    cell: "Cell",
    packing: asyncio.Task[tuple[Package, list[Package]]],
    screen: "Screen",
    interrupts: "Interrupts",
) -> "Outcome":
    """Start the manager, upload and run the pipeline, stop the manager and its agent. `packing`: the task that makes
    the snapshots of the projects."""
    from remuda.lib.clock import SystemClock
    from remuda.lib.files import disable_sync
    from remuda.localrun import local_agent
    from remuda.localrun.embedded import local_manager, run_manager
    from remuda.localrun.follow import Follower
    from remuda.localrun.local_jobs import LocalJobs
    from remuda.manager.environments.local import LocalEnvironment

    own, others = await packing
    if own.snapshot.remark:
        screen.say(own.snapshot.remark)
    tags = sorted({tag for job in spec.pipeline.jobs for tag in job.tags})
    data, news = manager_data(workspace.folder), asyncio.Event()
    links, run_as = _links(spec, workspace), workspace.isolation.run_as
    jobs = LocalJobs(is_ignored=spec.containers.choice == "never", streams=screen.streams)
    if spec.borrows:
        disable_sync()
    if spec.containers.concerns(spec.pipeline):
        screen.say(await asyncio.to_thread(spec.containers.announce, os.environ))
    async with asyncio.TaskGroup() as group:
        delivering = group.create_task(deliver(cell, own, others, spec.file, spec.choice, links=links), name="upload")
        runner = await cell.client.add_instance_runner("remuda run", tags=tags)
        cache = _cache(spec, run_as)
        config = local_manager(
            "remuda run",
            url=cell.url,
            token=runner.token,
            concurrent=spec.at_once,
            run_as=run_as,
            containers=spec.containers,
            cache_dir=str(cache) if cache else "",
            # The repositories are on this machine: git need not go through the cell.
            clone_url=links.as_uri() if links else "",
        )
        environment = LocalEnvironment(
            data,
            clock=SystemClock(),
            idle_exit_seconds=AGENT_IDLE_SECONDS,
            agent_pid=workspace.agent_pid,
            around_agent=workspace.agent_prefix,
        )
        try:
            async with run_manager(
                config,
                data,
                environment,
                keep_builds=spec.keeps_builds,
                on_job_over=news.set,
                jobs=jobs,
            ):
                pipeline = await delivering
                freeze_objects()
                interrupts.hold()
                follower = Follower(
                    cell.client,
                    pipeline.id,
                    SystemClock(),
                    runner=runner,
                    tags=tags,
                    plays=spec.plays,
                    news=news,
                    jobs=jobs,
                )
                return await _follow(spec, follower, cell.client, screen, interrupts)
        finally:
            await local_agent.close(local_agent.data_of(data))


def _settings(spec: RunSpec, folder: Path, objects: list[Path], links: Path | None) -> "CellSettings":
    """Return the settings of the cell for the run's data folder `folder`. `objects`: object folders of the snapshots,
    which the cell uses without copying; they need not exist yet. `links`: the folder in which the cell creates links to
    its repositories, for jobs to clone from; None if jobs clone over HTTP."""
    from remuda.cell.settings import CellSettings

    variables = spec.file.facts.predefined
    return CellSettings(
        data=folder / "cell",
        port=0,
        # A cancel reaches a job with the answer to its next trace append, so appends must be frequent.
        trace_interval_seconds=1,
        remote_includes=spec.file.sources.remotes,
        templates=spec.file.sources.templates,
        needs_limit=spec.file.facts.needs_limit,
        masks_any_value=True,
        component_hosts=tuple(
            {variables[name] for name in ("CI_SERVER_HOST", "CI_SERVER_FQDN") if name in variables}
            | spec.file.sources.component_hosts
        ),
        borrowed_objects=tuple(objects) if spec.borrows else (),
        links=links,
        # `deliver` creates the pipeline; pushes only upload commits.
        pipelines_per_push=0,
    )


async def _follow(
    spec: RunSpec, follower: "Follower", client: "UserClient", screen: "Screen", interrupts: "Interrupts"
) -> "Outcome":
    from remuda.localrun import report
    from remuda.localrun.artifacts import collect
    from remuda.localrun.render.words import plural

    screen.say(f"{spec.file.folder}: {plural(len(spec.pipeline.jobs), 'job')}, up to {spec.at_once} at once")
    view = await follower.follow(screen, interrupts)
    outcome = report.Outcome(
        view=view,
        tails=await _tails(client, view, whole=spec.shows_logs),
        has_whole_logs=spec.shows_logs,
        tests=await _tests(client, view),
        interrupted=interrupts.asked.is_set(),
    )
    if spec.artifacts is not None:
        await collect(client, view, spec.artifacts)
    screen.finish(outcome)
    if spec.output == "json":
        print(json.dumps(report.document(outcome), indent=2), flush=True)
    return outcome


async def _tails(client: "UserClient", view: "RunView", *, whole: bool) -> dict[int, list[str]]:
    """Return log lines by job id: the last lines of failed jobs, or with `whole` the whole logs of all started jobs."""
    from remuda.localrun.render.log_text import tail

    jobs = [job for _, _, job in view.all_jobs() if job.started_at is not None and (whole or job.has_failed())]
    return {job.id: tail((await client.trace(job.id)).data, None if whole else TAIL_LINES) for job in jobs}


async def _tests(client: "UserClient", view: "RunView") -> "list[TestReport]":
    from remuda.localrun.artifacts import report_of
    from remuda.localrun.junit import read

    return [
        read(name, await report_of(client, pipeline, job, "junit"))
        for name, pipeline, job in view.all_jobs()
        if any(file.type == "junit" for file in job.files)
    ]
