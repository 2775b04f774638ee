"""Runs one stage of a job through a driver's `run_exec`: `remuda-step custom_exec FOLDER FILE`.

FOLDER is the driver's, FILE is JSON with the `step` whose turn it is, the path of its `script`, and `env`. The name of
a step is the name of the stage. The runner's own stages have their text in the manager's order; the job's own come from
its script. `run_exec` gets its arguments, the path of a script that needs nothing but a shell, and the stage's name;
the exit code is that of the job's script where the driver tells it, or a failure of the platform.

Decides also what is left out, as GitLab's runner does: an after_script when no script of the job was begun, and
everything behind a `prepare_script` that failed. A second try to get sources begins with `clear_worktree`.
"""

import json
from pathlib import Path
from typing import Any

from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import tell_failure
from remuda.stdsteps.custom import job as custom_job
from remuda.stdsteps.custom.driver import BuildFailureError, Driver, check, program
from remuda.stdsteps.custom.job import CustomJob, status_of

PREPARE, SOURCES, CLEAR, AFTER = "prepare_script", "get_sources", "clear_worktree", "after_script"
_ELSEWHERE = (PREPARE, SOURCES, CLEAR, "cleanup_file_variables")
"""Stages that do not begin in the project's folder."""


def main(arguments: list[str]) -> int:
    """The exit code of the stage's script."""
    try:
        if len(arguments) != 2:
            raise StepError("custom_exec needs a folder and a file")
        request = json.loads(Path(arguments[1]).read_bytes())
        job = custom_job.load(Path(arguments[0]))
        if job is None:
            raise PlatformError("the environment was not opened; its folder knows nothing of it")
        if "script" not in request:
            raise StepError("a driver of the custom executor runs the scripts of a job's stages, and nothing else")
        return _run(job, request)
    except BuildFailureError as error:
        return error.exit_code
    except PlatformError as error:
        tell_failure(error)
        raise


def _run(job: CustomJob, request: dict[str, Any]) -> int:
    step, history = str(request["step"]), _History(job.folder / "stages")
    if _is_left_out(step, history):
        return 0
    driver, scripts, env = Driver(job), job.order["scripts"], status_of(request["env"])
    if step == SOURCES and history.has_begun(SOURCES):
        _stage(driver, job, CLEAR, scripts[CLEAR], env)
    history.add("begun", step)
    text = scripts.get(step) or Path(request["script"]).read_bytes().decode("utf-8", "surrogateescape")
    _stage(driver, job, step, text, env)
    history.add("done", step)
    return 0


def _stage(driver: Driver, job: CustomJob, step: str, text: str, env: dict[str, str]) -> None:
    stage = job.order["stages"].get(step, step)
    script = job.folder / f"script-{stage}" / "script.sh"
    script.parent.mkdir(mode=0o700, exist_ok=True)
    whole = job.script(text, goes_there=step not in _ELSEWHERE, more=env, is_first=step == PREPARE)
    script.write_bytes(whole.encode("utf-8", "surrogateescape"))
    script.chmod(0o700)
    job.exit_code_file.unlink(missing_ok=True)
    called = program(job, "run", str(script), stage)
    check(called, driver.call(called), job.exit_code_file)


def _is_left_out(step: str, history: "_History") -> bool:
    if step == AFTER and not history.has_begun("step_"):
        say("Skipping after_script: no script of the job was begun")
        return True
    return step != PREPARE and not history.is_done(PREPARE)


class _History:
    """Which stages there were, in a file that the next stage reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = path.read_text().splitlines() if path.exists() else []

    def add(self, what: str, step: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{what} {step}\n")

    def has_begun(self, start: str) -> bool:
        return any(line.startswith(f"begun {start}") for line in self._lines)

    def is_done(self, step: str) -> bool:
        return f"done {step}" in self._lines
