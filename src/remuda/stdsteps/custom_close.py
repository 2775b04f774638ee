"""Has a driver of GitLab's custom executor clean up: `cleanup_exec`, whatever happened before.

Its failure is a line in the log and changes nothing about how the job ended.
"""

from pathlib import Path

from remuda.stdsteps import custom_job
from remuda.stdsteps.custom_driver import Driver, check, program
from remuda.stdsteps.custom_job import CustomJob, Said
from remuda.stdsteps.errors import StepError
from remuda.stdsteps.inputs import Inputs
from remuda.stdsteps.speech import say


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
