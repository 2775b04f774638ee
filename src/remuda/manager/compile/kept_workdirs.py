"""Stores a job's working directory (its path) and variables, so that a user can open a shell there after the job
failed.

File variables get new files, because the agent deletes its own at the end of the job. Only the user that wrote the
files can read them, because some are secret. They are deleted when the job is over, unless it failed: then they stay
until the data folder is deleted."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from remuda.lib.files import write_whole
from remuda.lib.safe_paths import remove_tree
from remuda.wire.agent_client import JobVariable


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    work_dir: Path
    environment: Mapping[str, str]
    """Variables for a shell. File variables are paths of existing files; values too large for a process environment
    are left out."""


def read_kept_job(data: Path, job_id: int) -> KeptJob | None:
    """Return what the manager with the data folder `data` stored about a job: its working directory and variables. None
    if nothing is stored: the job has ended without a failure, or the manager does not keep working directories."""
    try:
        content = json.loads((_folder(data, job_id) / "job.json").read_bytes())
    except FileNotFoundError:
        return None
    from remuda.steps.process.environment import fit  # imported here because it is slow

    return KeptJob(
        work_dir=Path(content["work_dir"]),
        environment=fit(content["environment"] | {"CI_JOB_STATUS": "failed"}).exported,
    )


def write(data: Path, job_id: int, *, work_dir: str, variables: Iterable[JobVariable]) -> None:
    folder = _folder(data, job_id)
    files = folder / "files"
    files.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = {}
    for variable in variables:
        environment[variable.key] = variable.value
        if variable.file:
            write_whole(files / variable.key, variable.value.encode())
            environment[variable.key] = str(files / variable.key)
    write_whole(folder / "job.json", json.dumps({"work_dir": work_dir, "environment": environment}).encode())


def remove(data: Path, job_id: int) -> None:
    remove_tree(_folder(data, job_id), ignore_errors=True)


def _folder(data: Path, job_id: int) -> Path:
    return Path(os.path.abspath(data)) / "kept" / str(job_id)
