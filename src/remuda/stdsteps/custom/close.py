"""Has a driver of GitLab's custom executor clean up: `cleanup_exec`, whatever happened before.

Its failure is a line in the log and changes nothing about how the job ended.
"""

from pathlib import Path

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.custom import job as custom_job
from remuda.stdsteps.custom.driver import Driver, check, program
from remuda.stdsteps.custom.job import CustomJob, Said


def run(inputs: Inputs) -> None:
    """The step. The other inputs are for opening."""
    folder, order = custom_job.driver_folder(), Path(inputs.text("order"))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        job = custom_job.load(folder) or CustomJob(order, folder, Said(), {})
        clean_up(Driver(job), job)
    except StepError as error:
        say(f"WARNING: Cleanup failed: {error}")


def clean_up(driver: Driver, job: CustomJob) -> None:
    """Call it, where the driver has one."""
    called = program(job, "cleanup")
    if not called.is_there:
        return
    try:
        check(called, driver.call(called))
    except StepError as error:
        say(f"WARNING: Cleanup failed: {error}")
