"""Jobs whose working directory stays when they fail, so that somebody can open a shell there: `kept_job` says where.

Written when such a job starts, removed when it succeeds. The variables are those the job's scripts had; file variables
are files again, because those of the agent end with the job. Everything is readable by this user only, for some of it
is secret. What is kept stays until the data folder goes; `jobs.py` writes it, a command line reads it.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from remuda.lib.files import write_whole
from remuda.lib.safe_paths import remove_tree
from remuda.wire.runner_api import Variable


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    """Where a failed job ran, and with which variables."""

    work_dir: Path
    environment: Mapping[str, str]
    """To be put over the environment of whoever opens a shell. File variables are paths of files that exist;
    a value that is too large for the environment of a program is left out."""


def kept_job(data: Path, job_id: int) -> KeptJob | None:
    """What a manager with this data folder kept of a job; None when it keeps nothing, or the job did not fail."""
    try:
        found = json.loads((_folder(data, job_id) / "job.json").read_bytes())
    except FileNotFoundError:
        return None
    from remuda.steps.process.environment import fit  # only here: it takes time to import

    return KeptJob(
        work_dir=Path(found["work_dir"]),
        environment=fit(found["environment"] | {"CI_JOB_STATUS": "failed"}).exported,
    )


def keep(data: Path, job_id: int, *, work_dir: str, variables: Iterable[Variable]) -> None:
    """A job starts."""
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


def forget(data: Path, job_id: int) -> None:
    """A job is over and nothing of it is wanted."""
    remove_tree(_folder(data, job_id), ignore_errors=True)


def _folder(data: Path, job_id: int) -> Path:
    return Path(os.path.abspath(data)) / "kept" / str(job_id)
