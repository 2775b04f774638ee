"""Runs one stage of a job by a driver's `run_exec`: `remuda-step custom_exec FOLDER FILE`. FOLDER is the driver's
folder. FILE is JSON with the name of the `step`, by which the name of the stage is found, the path of its `script`, and
`env`. If the driver reports that the script failed, the exit code is that of the script, or 1 if the driver does not
report it. Every other failure of the driver is reported as a failure of the platform.

As in GitLab Runner, some stages are skipped: after_script if no script of the job has started, and everything after a
`prepare_script` that failed. A second attempt to get sources begins with `clear_worktree`."""

import json
from pathlib import Path
from typing import Any

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import report_platform_failure
from remuda.stdsteps.custom import job as custom_job
from remuda.stdsteps.custom.driver import BuildFailureError, Driver, check, find_program
from remuda.stdsteps.custom.job import CustomJob, select_status

PREPARE, SOURCES, CLEAR, AFTER = "prepare_script", "get_sources", "clear_worktree", "after_script"
_OUTSIDE_PROJECT = (PREPARE, SOURCES, CLEAR, "cleanup_file_variables")
"""Stages that do not begin in the project's folder."""


def main(arguments: list[str]) -> int:
    """Run one stage and return the exit code of its script. Raises PlatformError, also reported through REMUDA_FAILURE,
    if the driver or its environment failed, StoppedError if the job is cancelled, StepError for invalid arguments."""
    try:
        if len(arguments) != 2:
            raise StepError("custom_exec needs a folder and a file")
        request = json.loads(Path(arguments[1]).read_bytes())
        job = custom_job.load(Path(arguments[0]))
        if job is None:
            raise PlatformError("the environment is not prepared: the step custom_open did not finish")
        if "script" not in request:
            raise StepError("the custom executor supports only the scripts of a job, not a shell or other commands")
        return _run(job, request)
    except BuildFailureError as error:
        return error.exit_code
    except PlatformError as error:
        report_platform_failure(error)
        raise


def _run(job: CustomJob, request: dict[str, Any]) -> int:
    step, history = str(request["step"]), _History(job.folder / "stages")
    if _is_skipped(step, history):
        return 0
    driver, scripts, env = Driver(job), job.order["scripts"], select_status(request["env"])
    if step == SOURCES and history.has_begun(SOURCES):
        _run_stage(driver, job, CLEAR, scripts[CLEAR], env)
    history.add("begun", step)
    text = scripts.get(step) or Path(request["script"]).read_bytes().decode("utf-8", "surrogateescape")
    _run_stage(driver, job, step, text, env)
    history.add("done", step)
    return 0


def _run_stage(driver: Driver, job: CustomJob, step: str, text: str, env: dict[str, str]) -> None:
    stage = job.order["stages"].get(step, step)
    script = job.folder / f"script-{stage}" / "script.sh"
    script.parent.mkdir(mode=0o700, exist_ok=True)
    whole = job.script(text, changes_dir=step not in _OUTSIDE_PROJECT, more=env, is_first=step == PREPARE)
    script.write_bytes(whole.encode("utf-8", "surrogateescape"))
    script.chmod(0o700)
    job.exit_code_file.unlink(missing_ok=True)
    program = find_program(job, "run", str(script), stage)
    check(program, driver.call(program), job.exit_code_file)


def _is_skipped(step: str, history: "_History") -> bool:
    if step == AFTER and not history.has_begun("step_"):
        say("Skipping after_script: no script of the job was started")
        return True
    return step != PREPARE and not history.is_done(PREPARE)


class _History:
    """The job's stages that have started or finished, stored in a file for the next call of this program."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = path.read_text().splitlines() if path.exists() else []

    def add(self, what: str, step: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{what} {step}\n")

    def has_begun(self, prefix: str) -> bool:
        return any(line.startswith(f"begun {prefix}") for line in self._lines)

    def is_done(self, step: str) -> bool:
        return f"done {step}" in self._lines
