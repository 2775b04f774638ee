"""Opens the environment of a driver of GitLab's custom executor: asks `config_exec`, then has `prepare_exec` make it.

What fails for another reason than the job's is tried three times, with `cleanup_exec` between. The inner steps are then
run by `custom_exec`, and `custom_close` ends it all, also after a failure here.
"""

from pathlib import Path

from remuda.stdsteps.common.errors import PlatformError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import tell
from remuda.stdsteps.custom import job as custom_job
from remuda.stdsteps.custom.close import clean_up
from remuda.stdsteps.custom.driver import Driver, check, program
from remuda.stdsteps.custom.job import CustomJob, read_said

TRIES = 3


def run(inputs: Inputs) -> None:
    order, secrets = Path(inputs.text("order")), {key: str(value) for key, value in inputs.mapping("secrets").items()}
    retry_seconds = inputs.number("retry_seconds", 3)
    inputs.number("grace_seconds", 0), inputs.number("close_seconds", 0)
    inputs.done()
    job = custom_job.begin(order, secrets)
    driver = Driver(job)
    for number in range(1, TRIES + 1):
        try:
            job = _prepare(driver, job)
            break
        except PlatformError as error:
            if number == TRIES or driver.is_told:
                raise
            say(f"WARNING: Preparation failed: {error}")
            clean_up(driver, job)
            say(f"Will be retried in {retry_seconds} s ...")
            driver.pause(retry_seconds)
    tell(
        environment={"exec": ["remuda-step", "custom_exec", str(job.folder)]},
        driver=job.said.driver,
        project_dir=job.project_dir,
    )


def _prepare(driver: Driver, job: CustomJob) -> CustomJob:
    configure = program(job, "config")
    if configure.is_there:
        printed = job.folder / "config.json"
        with printed.open("wb") as file:
            check(configure, driver.call(configure, stdout=file))
        job.said = read_said(printed.read_text(errors="replace"))
    by = f" with driver {job.said.driver}" if job.said.driver else ""
    say(f"Using Custom executor{by}...")
    job.check()
    job.save()
    prepare = program(job, "prepare")
    if prepare.is_there:
        check(prepare, driver.call(prepare))
    return job
