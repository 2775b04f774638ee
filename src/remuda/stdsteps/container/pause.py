"""Pauses the container that `container_open` made: nothing in it runs until somebody opens a shell there.

Called with the inputs of `container_close` when that is put off because the job is held. The steps that follow work
in the directory that the container has, too, some of them with the agent's rights.
"""

from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.container.open import container_name, engine_address
from remuda.stdsteps.engine import job_containers
from remuda.stdsteps.engine.docker_api import Engine
from remuda.stdsteps.engine.job_containers import this_owner


def run(inputs: Inputs) -> None:
    """Returns when nothing runs in the container any more; StepError where that cannot be."""
    name = container_name(this_owner(inputs.text("job", "")))
    job_containers.pause(Engine(engine_address(inputs)), name)
