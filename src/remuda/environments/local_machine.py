"""For plugins whose jobs run on the machine where the plugin runs: folders, the operator's commands, the agent.

A plugin is free to do all of this otherwise. `base` is a machine's folder: its agent, working directories, caches.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from remuda.environments.errors import LostError
from remuda.environments.plugin import Connection, through
from remuda.environments.values import Folders, Place
from remuda.lib.processes import reap
from remuda.lib.safe_paths import make_below, remove_below

HOOK_SECONDS = 600.0
OUTPUT_BYTES = 64 * 1024
IDLE_EXIT_SECONDS = 60
"""When an agent without work ends, as those of managers do."""


def folders_of(base: Path, place: Place) -> Folders:
    """Where a job is."""
    builds = base / (place.builds_dir or "builds")
    own = str(place.slot) if place.job is None else f"job-{place.job}"
    work = builds / (place.folder or f"{place.runner}/{own}/{place.project}")
    return Folders(work_dir=str(work), builds_dir=str(builds), cache_dir=str(base / (place.cache_dir or "cache")))


def make_folders(base: Path, place: Place) -> Folders:
    """Make them; what is there stays. LostError."""
    found = folders_of(base, place)
    if place.run_as:
        raise LostError(f"run_as = {place.run_as}: jobs of this plugin run as its own user")
    try:
        for folder, mode in ((found.work_dir, 0o777), (f"{found.work_dir}.tmp", 0o700)):
            os.close(make_below(*_below(base, place, folder), mode=mode))
    except OSError as error:
        raise LostError(f"the working directory {found.work_dir} cannot be made: {error.strerror}") from error
    return found


async def remove_folders(base: Path, place: Place) -> None:
    """What was only for this job."""
    found = folders_of(base, place)
    own = Path(found.builds_dir) / place.runner / f"job-{place.job}"
    gone = Path(f"{found.work_dir}.tmp") if place.job is None else own
    with suppress(OSError):
        await asyncio.to_thread(remove_below, *_below(base, place, str(gone)))


def _below(base: Path, place: Place, folder: str) -> tuple[Path, str]:
    """A folder that is the operator's or the plugin's own, and the way from there on, in which no link is followed."""
    known = base / place.builds_dir if place.builds_dir else base
    return known, str(Path(folder).relative_to(known))


async def run_hook(name: str, command: str, place: Place, work_dir: str) -> str:
    """Run an operator's command in a shell; its output. LostError when it fails or takes too long."""
    if not command:
        return ""
    about = {
        "REMUDA_JOB": place.key.partition("-")[0],
        "REMUDA_RUNNER": place.runner,
        "REMUDA_SLOT": str(place.slot),
        "REMUDA_PROJECT": place.project,
        "REMUDA_WORK_DIR": work_dir,
    }
    process = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | about,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            printed, _ = await process.communicate()
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await reap(process)
        if not isinstance(error, TimeoutError):
            raise
        raise LostError(f"the runner's {name} took more than {HOOK_SECONDS:.0f} s") from None
    text = printed[-OUTPUT_BYTES:].decode(errors="replace")
    if process.returncode:
        words = " ".join(text.split())[-300:]
        raise LostError(f"the runner's {name} ended with {process.returncode}{f': {words}' if words else ''}")
    return text


async def connect_agent(base: Path) -> Connection:
    """To the agent of a machine's folder, which is started first where none runs."""
    data = base / "agent"
    base.mkdir(parents=True, exist_ok=True)
    words = ("proxy", "--start", "--idle-exit", str(IDLE_EXIT_SECONDS), "--data", str(data))
    return await through(sys.executable, "-m", "remuda.steps", *words)


def has_jobs(base: Path) -> bool:
    """Whether the agent there keeps any."""
    return any((base / "agent" / "jobs").glob("*"))
