"""The step `custom_close`: calls `cleanup_exec` of a custom executor's driver, also after a failed job. A failure is
logged and does not change the job's result. Its own module: `remuda.stdsteps.__main__` imports steps by module name."""

from pathlib import Path

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.custom import job as custom_job
from remuda.stdsteps.custom.driver import Driver, check, find_program
from remuda.stdsteps.custom.job import CustomJob, DriverConfig


def run(inputs: Inputs) -> None:
    folder, order = custom_job.driver_folder(), Path(inputs.text("order"))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        job = custom_job.load(folder) or CustomJob(order, folder, DriverConfig(), {})
        clean_up(Driver(job), job)
    except StepError as error:
        say(f"WARNING: Cleanup failed: {error}")


def clean_up(driver: Driver, job: CustomJob) -> None:
    program = find_program(job, "cleanup")
    if not program.is_configured:
        return
    try:
        check(program, driver.call(program))
    except StepError as error:
        say(f"WARNING: Cleanup failed: {error}")
