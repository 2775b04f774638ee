"""Opens a shell in the working directory of a failed job, with the job's variables, after a `remuda run`. To do so,
writes a script that the user can run again later; only the user can read it, because variables may be secret.
`remuda.manager.compile.kept_workdirs` keeps the working directory and the variables."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from remuda.localrun.view import RunView


def offer(view: RunView, folder: Path, manager_data: Path, *, opens: bool, is_kept: bool) -> None:
    """Choose a failed job whose directory was kept, preferably one not allowed to fail, and write a script to `folder`
    that opens a shell there. With `opens`, on a terminal, run it now; else print how to run it later, or why not.
    `manager_data`: has records of the directory and variables. `is_kept`: `folder` is not deleted after the run."""
    from remuda.manager.compile.kept_workdirs import read_kept_job

    for name, _, job in sorted(view.all_jobs(), key=lambda entry: entry[2].allow_failure):
        kept_job = read_kept_job(manager_data, job.id) if job.has_failed() else None
        if kept_job is None:
            continue
        if job.containers is not None and job.containers.image and not job.containers.is_ignored:
            name = f"{name} (it ran in a container of {job.containers.image}, the shell is outside of it)"
        script = folder / f"shell-{job.id}.sh"
        descriptor = os.open(script, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700)
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(script_text(kept_job.work_dir, kept_job.environment))
        if opens and sys.stdin.isatty() and sys.stdout.isatty():
            print(f"a shell where {name} failed; leave it to end the run", flush=True)
            subprocess.run(["/bin/sh", str(script)], check=False)
        elif is_kept:
            print(f"a shell where {name} failed: sh {script}", file=sys.stderr)
        else:
            print(
                f"no shell where {name} failed: there is no terminal; with --keep its folder stays, and you are told "
                "how to open a shell there later",
                file=sys.stderr,
            )
        return


def script_text(work_dir: Path, environment: Mapping[str, str]) -> str:
    lines = ["#!/bin/sh", f"cd {shlex.quote(str(work_dir))} || exit"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    return "\n".join([*lines, 'exec "${SHELL:-/bin/sh}"', ""])
