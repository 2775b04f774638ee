"""The step `custom_open`: prepares the environment of a job by a custom executor's driver. Calls `config_exec`, then
`prepare_exec`. After a failure of the platform, calls `cleanup_exec` and tries again, up to three attempts in total.
`custom_close` cleans up, even if this step failed."""

from pathlib import Path

from remuda.stdsteps.common.errors import PlatformError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.custom import job as custom_job
from remuda.stdsteps.custom.close import clean_up
from remuda.stdsteps.custom.driver import Driver, check, find_program
from remuda.stdsteps.custom.job import CustomJob, parse_config

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
            if number == TRIES or driver.is_cancelled:
                raise
            say(f"WARNING: Preparation failed: {error}")
            clean_up(driver, job)
            say(f"Will be retried in {retry_seconds} s ...")
            driver.pause(retry_seconds)
    write_outputs(
        environment={"exec": ["remuda-step", "custom_exec", str(job.folder)]},
        driver=job.config.driver,
        project_dir=job.project_dir,
    )


def _prepare(driver: Driver, job: CustomJob) -> CustomJob:
    configure = find_program(job, "config")
    if configure.is_configured:
        printed = job.folder / "config.json"
        with printed.open("wb") as file:
            check(configure, driver.call(configure, stdout=file))
        job.config = parse_config(printed.read_text(errors="replace"))
    by = f" with driver {job.config.driver}" if job.config.driver else ""
    say(f"Using Custom executor{by}...")
    job.check()
    job.save()
    prepare = find_program(job, "prepare")
    if prepare.is_configured:
        check(prepare, driver.call(prepare))
    return job
