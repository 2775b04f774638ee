"""`remuda run`: a repository's pipeline here and now, through a whole platform that exists only for this run.

Decided here: what counts as a run's input, and the order of things: check, snapshot, start, push, follow, sum up, tidy.
What the platform is made of stands in `embedded`, what is shown in `view`, `screen` and `report`.

Invariant: however a run ends, short of kill -9, no process and no temporary file of it is left.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from remuda.cli.exits import BadInputError, CommandError
from remuda.cli.options import Output, platform_folder, usable_folder
from remuda.cli.snapshot import PIPELINE_FILE, REPOSITORY_VARIABLES, Snapshot, push_environment, take

if TYPE_CHECKING:
    from remuda.cli.embedded import Cell
    from remuda.cli.interrupts import Interrupts
    from remuda.cli.screen import Screen
    from remuda.pipeline import Pipeline
    from remuda.wire.user_client import PipelineInfo, ProjectInfo, UserClient

TAIL_LINES = 30
PIPELINE_WAIT_SECONDS = 30.0
"""How long a pushed commit may take to become a pipeline."""
AGENT_IDLE_SECONDS = 5.0
"""After a kill -9 of the run, which can stop nothing any more, the agent ends by itself so long after its jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A run's options, checked and resolved before anything starts."""

    folder: Path
    text: bytes
    pipeline: "Pipeline"
    jobs: int
    output: str
    artifacts: Path | None

    @property
    def project_name(self) -> str:
        """The folder's name as far as a project's path allows it."""
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", self.folder.name).strip("-._")
        return name.removesuffix(".git").removesuffix(".atom") or "project"


def run(
    path: Annotated[Path, Parameter(help="The repository, or any folder with a pipeline file.")] = Path("."),
    /,
    *,
    file: Annotated[Path | None, Parameter(help="Pipeline file to use in place of PATH/.gitlab-ci.yml.")] = None,
    jobs: Annotated[
        int | None, Parameter(help="Jobs at the same time [default: the number of cores, at least 2].")
    ] = None,
    output: Output = "text",
    artifacts: Annotated[Path | None, Parameter(help="Unpack the artifacts of all jobs into DIR/<job name>.")] = None,
    data: Annotated[Path | None, Parameter(help="Keep everything in this folder; it may be used again.")] = None,
    keep: Annotated[bool, Parameter(negative=(), help="Keep the temporary data folder, and say where it is.")] = False,
) -> int:
    """Run a repository's pipeline here and now.

    Starts a cell, a runner manager and an agent for this run only, pushes a snapshot of PATH into it and follows the
    pipeline. The snapshot holds uncommitted changes and leaves out what git ignores; the repository itself is not
    touched. Jobs run on this machine as your user.

    Ctrl-C cancels the pipeline and waits for its jobs to end; a second one leaves at once.

    Try:

        remuda run
        remuda run examples/hello
        remuda run --jobs 4 --artifacts out
        remuda run --output json | python3 -m json.tool

    Exit codes: 0 the pipeline succeeded, 1 it failed, 2 bad input, 130 interrupted.
    """
    asked = _resolve(path, file, jobs, output, artifacts)
    # Inside a git hook these would turn the git of every job to the repository of the hook.
    for name in REPOSITORY_VARIABLES:
        os.environ.pop(name, None)
    # Until the loop runs and handles signals itself, each of them is a Ctrl-C: the clean-up below still happens.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with (
        _data_folder(data, keep=keep) as folder,
        # Outside the loop, whose end waits for its threads: none of them writes there any more when this is removed.
        tempfile.TemporaryDirectory(dir=folder, prefix="snapshot-") as own,
    ):
        return asyncio.run(_run(asked, folder, Path(own) / "own.git"))


def _resolve(path: Path, file: Path | None, jobs: int | None, output: str, artifacts: Path | None) -> _Run:
    from remuda.pipeline import compile_pipeline

    folder = path.resolve()
    if not folder.exists():
        raise BadInputError(f"{path}: there is no such folder")
    if not folder.is_dir():
        raise BadInputError(f"{path}: is a file; give the folder, and --file {path} for another pipeline file")
    source = file if file is not None else path / PIPELINE_FILE
    try:
        text = source.read_bytes()
    except FileNotFoundError:
        raise BadInputError(
            f"{source}: there is no pipeline file; write one, or name another with --file. The smallest one:\n\n"
            '    hello:\n      script: [echo "Hello"]'
        ) from None
    except OSError as error:
        raise BadInputError(f"{source}: cannot be read: {error.strerror}") from None
    if jobs is not None and jobs < 1:
        raise BadInputError(f"--jobs {jobs}: at least 1")
    pipeline = compile_pipeline(text.decode(errors="replace"), file=str(source))
    if artifacts is not None:
        usable_folder(artifacts, "--artifacts")
    return _Run(
        folder=folder,
        text=text,
        pipeline=pipeline,
        jobs=jobs or max(2, len(os.sched_getaffinity(0))),
        output=output,
        artifacts=artifacts.absolute() if artifacts else None,
    )


@contextmanager
def _data_folder(data: Path | None, *, keep: bool) -> Iterator[Path]:
    """The given folder, or one that lasts as long as the run."""
    if data is not None:
        yield platform_folder(data, "--data").resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="remuda-run-"))
    try:
        yield folder
    finally:
        # This is short, and half done it would leave a mess that nobody finds.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            remove_tree(folder)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that jobs left in it, folders without write permission included."""

    def unlock(_function: object, path: str, _error: object) -> None:
        for place in (os.path.dirname(path), path):
            if not os.path.islink(place):
                os.chmod(place, 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)

    try:
        shutil.rmtree(folder, onerror=unlock)
    except OSError as error:
        print(f"remuda: could not remove {folder}: {error}; remove it by hand", file=sys.stderr)


async def _run(asked: _Run, folder: Path, git_dir: Path) -> int:
    from remuda.cli.interrupts import Interrupts
    from remuda.cli.screen import GuardedScreen, screen_for
    from remuda.cli.servicelog import service_log
    from remuda.cli.signals import STOPPING, handled
    from remuda.telemetry import logs

    _check_room(folder)
    interrupts = Interrupts()
    with (
        handled(dict.fromkeys(STOPPING, interrupts.arrive)),
        GuardedScreen(screen_for(asked.output), on_lost=interrupts.arrive) as screen,
    ):
        async with interrupts.stopping():
            snapshot = await asyncio.to_thread(take, asked.folder, asked.text, git_dir)
            with (folder / "remuda.log").open("a") as log:
                logs.configure(stream=service_log(log, screen.say))
                return await _through_platform(asked, folder, snapshot, screen, interrupts)


def _check_room(folder: Path) -> None:
    """Below the manager's own limit no job would ever start."""
    from remuda.manager.polling import LEAST_DISK_BYTES

    free = shutil.disk_usage(folder).free
    if free < LEAST_DISK_BYTES:
        raise CommandError(
            f"only {free >> 20} MiB are free at {folder}, a run needs {LEAST_DISK_BYTES >> 20}; free some space, or "
            "choose another place with --data or TMPDIR"
        )


async def _through_platform(
    asked: _Run, folder: Path, snapshot: Snapshot, screen: "Screen", interrupts: "Interrupts"
) -> int:
    """Start the platform, run the pipeline in it, stop it."""
    from remuda.cli import local_agent
    from remuda.cli.cell import settings_from
    from remuda.cli.embedded import ensure_token, keep_off_proxies, managing, serving_cell
    from remuda.manager.config import ManagerConfig, RunnerConfig

    keep_off_proxies()
    # A cancel reaches a job with the answer to its next piece of log; nobody should wait for that for long here.
    environment = {"REMUDA_ADMIN_TOKEN": ensure_token(folder), "REMUDA_TRACE_INTERVAL_SECONDS": "1"}
    settings = settings_from(environment, data=folder / "cell", host="127.0.0.1", port=0)
    manager_data = folder / "manager"
    async with serving_cell(settings) as cell:
        runner = RunnerConfig(
            name="remuda run",
            url=cell.url,
            token=await cell.client.create_instance_runner("remuda run", tags=_tags(asked.pipeline)),
            executor="shell",
            request_concurrency=min(asked.jobs, 4),
        )
        config = ManagerConfig(concurrent=asked.jobs, runners=(runner,))
        try:
            async with managing(config, manager_data, agent_idle_seconds=AGENT_IDLE_SECONDS):
                return await _through_pipeline(asked, snapshot, cell, screen, interrupts)
        finally:
            await local_agent.close(local_agent.data_of(manager_data))


async def _through_pipeline(
    asked: _Run, snapshot: Snapshot, cell: "Cell", screen: "Screen", interrupts: "Interrupts"
) -> int:
    """Push, follow to the end, sum up."""
    from remuda.cli import report
    from remuda.cli.artifacts import unpack
    from remuda.cli.follow import Follower
    from remuda.cli.logtext import tail
    from remuda.lib.clock import SystemClock

    project = await cell.client.ensure_project(asked.project_name, default_branch=snapshot.branch)
    await _push(snapshot, project, cell.authorization)
    pipeline = await _pipeline_of(cell.client, project, snapshot)
    interrupts.hold()
    screen.say(f"{asked.folder}: {report.counted(len(asked.pipeline.jobs), 'job')}, up to {asked.jobs} at once")
    follower = Follower(cell.client, pipeline, asked.pipeline.stages, SystemClock())
    view = await follower.follow(screen, interrupts)
    tails = {job.id: tail((await cell.client.trace(job.id)).data, TAIL_LINES) for job in view.jobs if job.has_failed()}
    if asked.artifacts is not None:
        for job in view.jobs:
            if job.has_artifacts:
                await unpack(cell.client, project.id, job, asked.artifacts)
    interrupted = interrupts.asked.is_set()
    screen.finish(view, tails)
    if asked.output == "json":
        print(json.dumps(report.document(view, tails=tails, interrupted=interrupted), indent=2), flush=True)
    return report.exit_of(view, interrupted=interrupted)


def _tags(pipeline: "Pipeline") -> list[str]:
    """Every tag a job asks for: whatever it is, this machine has to do."""
    return sorted({tag for job in pipeline.jobs for tag in job.tags})


async def _push(snapshot: Snapshot, project: "ProjectInfo", authorization: str) -> None:
    """Send the snapshot to the cell; this starts the pipeline."""
    process = await asyncio.create_subprocess_exec(
        "git",
        "push",
        "--quiet",
        "--force",
        project.http_url_to_repo,
        f"refs/heads/{snapshot.branch}",
        env=push_environment(snapshot, authorization),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, complaint = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    if process.returncode != 0:
        raise CommandError(f"the snapshot could not be pushed: {complaint.decode(errors='replace').strip()}")


async def _pipeline_of(client: "UserClient", project: "ProjectInfo", snapshot: Snapshot) -> "PipelineInfo":
    """The pipeline that the push started."""
    try:
        async with asyncio.timeout(PIPELINE_WAIT_SECONDS):
            while True:
                for pipeline in await client.pipelines(project.id):
                    if pipeline.sha == snapshot.sha:
                        return pipeline
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise CommandError(f"the cell made no pipeline of the pushed commit within {PIPELINE_WAIT_SECONDS} s") from None
