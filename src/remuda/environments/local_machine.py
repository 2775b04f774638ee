"""Helpers for plugins whose jobs run on the plugin's machine: folders, hooks, connection to the agent. Their use is
optional. `base` is the folder of a machine, with its agent, working directories and caches."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from remuda.environments.errors import LostError
from remuda.environments.plugin import Connection, through
from remuda.environments.values import Folders, Place
from remuda.lib.safe_paths import make_below, remove_below
from remuda.plugins import job_hooks

IDLE_EXIT_SECONDS = 60
"""An idle agent ends after this time, as those of managers do."""


def folders_of(base: Path, place: Place) -> Folders:
    """Paths of a job's working directory, builds and cache folder in a machine's folder `base`. Creates nothing."""
    builds = base / (place.builds_dir or "builds")
    own = str(place.slot) if place.job is None else f"job-{place.job}"
    work = builds / (place.folder or f"{place.runner}/{own}/{place.project}")
    return Folders(work_dir=str(work), builds_dir=str(builds), cache_dir=str(base / (place.cache_dir or "cache")))


def make_folders(base: Path, place: Place) -> Folders:
    """Create a job's working directory in a machine's folder `base`, and a second one with the suffix `.tmp`, if
    missing; return the paths of the job's folders. LostError if that fails, or for `run_as`, which is not supported."""
    folders = folders_of(base, place)
    if place.run_as:
        raise LostError(f"run_as = {place.run_as}: jobs of this plugin run as its own user")
    try:
        for folder, mode in ((folders.work_dir, 0o777), (f"{folders.work_dir}.tmp", 0o700)):
            os.close(make_below(*_below(base, place, folder), mode=mode))
    except OSError as error:
        raise LostError(f"the working directory {folders.work_dir} cannot be created: {error.strerror}") from error
    return folders


async def remove_folders(base: Path, place: Place) -> None:
    """Remove the job's folders that no later job can use: the folder with the suffix `.tmp` or, if `place.job` is set
    (the working directory is for this job alone), the folder `job-ID` with everything in it. Errors are ignored."""
    folders = folders_of(base, place)
    job_folder = Path(folders.builds_dir) / place.runner / f"job-{place.job}"
    obsolete = Path(f"{folders.work_dir}.tmp") if place.job is None else job_folder
    with suppress(OSError):
        await asyncio.to_thread(remove_below, *_below(base, place, str(obsolete)))


def _below(base: Path, place: Place, folder: str) -> tuple[Path, str]:
    """Split the path of a job's folder into a folder that jobs cannot replace (`builds_dir` of the configuration, or
    `base`), and the path below it, in which links must not be followed because jobs can write there."""
    trusted = base / place.builds_dir if place.builds_dir else base
    return trusted, str(Path(folder).relative_to(trusted))


async def run_hook(name: str, command: str, place: Place, work_dir: str) -> str:
    """Run the hook `name` (before_job, after_job) in a shell and return its output. Raises LostError if it fails or
    takes too long."""
    return await job_hooks.run_hook(name, command, place, work_dir=work_dir, error_type=LostError)


async def connect_agent(base: Path) -> Connection:
    """Connect to the agent of the machine with the folder `base`. The agent is started if it does not run."""
    data = base / "agent"
    base.mkdir(parents=True, exist_ok=True)
    words = ("proxy", "--start", "--idle-exit", str(IDLE_EXIT_SECONDS), "--data", str(data))
    return await through(sys.executable, "-m", "remuda.steps", *words)


def has_jobs(base: Path) -> bool:
    """True if the agent in a machine's folder `base` has jobs, running or ended."""
    return any((base / "agent" / "jobs").glob("*"))
