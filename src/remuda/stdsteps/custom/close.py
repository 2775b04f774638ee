"""The step `custom_close`: calls `cleanup_exec` of a driver of GitLab's custom executor, also after a failed job.

A failure of it is logged and does not change the job's result. Its own module because `remuda.stdsteps.__main__`
imports every step by the name of its module.
"""

from pathlib import Path

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.custom import job as custom_job
from remuda.stdsteps.custom.driver import Driver, check, program
from remuda.stdsteps.custom.job import CustomJob, Said


def run(inputs: Inputs) -> None:
    folder, order = custom_job.driver_folder(), Path(inputs.text("order"))
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        job = custom_job.load(folder) or CustomJob(order, folder, Said(), {})
        clean_up(Driver(job), job)
    except StepError as error:
        say(f"WARNING: Cleanup failed: {error}")


def clean_up(driver: Driver, job: CustomJob) -> None:
    """Call `cleanup_exec` if the driver has one."""
    called = program(job, "cleanup")
    if not called.is_there:
        return
    try:
        check(called, driver.call(called))
    except StepError as error:
        say(f"WARNING: Cleanup failed: {error}")
