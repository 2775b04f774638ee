"""The step `container_pause`: pauses the job's container until somebody opens a shell in it. Runs instead of
`container_close`, with the same inputs, when a failed job is kept for debugging. Later steps of the job work in the
directory that the container shares, some with the agent's rights, so the container's processes must not run
meanwhile."""

from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.container.open import container_name, engine_address
from remuda.stdsteps.engine import job_containers
from remuda.stdsteps.engine.docker_api import Engine
from remuda.stdsteps.engine.job_containers import this_owner


def run(inputs: Inputs) -> None:
    name = container_name(this_owner(inputs.text("job", "")))
    job_containers.pause(Engine(engine_address(inputs)), name)
