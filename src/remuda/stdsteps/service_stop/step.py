"""The step `service_stop`: shows the last log lines of the job's services, and removes them and the job's network.
Always runs, also after a failure. If the engine refuses to remove a container, that is only a warning, because the
job's work is done."""

from typing import Any

from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import write_outputs
from remuda.stdsteps.container.logs import read_log, show
from remuda.stdsteps.container.open import engine_address
from remuda.stdsteps.engine import job_containers
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError, EngineRefusedError
from remuda.stdsteps.engine.job_containers import SERVICE_ROLE, Owner, this_owner

SHOWN_LINES = 50


def run(inputs: Inputs) -> None:
    engine = Engine(engine_address(inputs))
    owner = this_owner(inputs.text("job", ""))
    lines = inputs.number("log_lines", SHOWN_LINES)
    inputs.done()
    try:
        _stop(engine, owner, lines)
    except EngineGoneError as error:
        job_containers.end_without_engine(job_containers.find_names_without_engine(owner.name()), error, engine)


def _stop(engine: Engine, owner: Owner, lines: int) -> None:
    mine = {"label": [f"remuda.key={owner.key}"]}
    services: list[dict[str, Any]] = []
    for container in engine.call("GET", "/containers/json", query={"all": 1, "filters": mine}):
        if container["Labels"].get("remuda.role") == SERVICE_ROLE and (result := _show_log(engine, container, lines)):
            services.append(result)
        try:
            job_containers.remove(engine, container["Id"])
        except EngineRefusedError as error:
            say(f"WARNING: cannot remove the container {container['Id'][:12]}: {error}")
    job_containers.remove_network(engine, owner.name())
    write_outputs(services=services)


def _show_log(engine: Engine, listed: dict[str, Any], lines: int) -> dict[str, Any] | None:
    """Write the last lines of a service's output to the job log, and return the service's state for the step's outputs;
    None if its container does not exist. `listed`: the entry of the container in the engine's list."""
    details = job_containers.inspect(engine, listed["Id"])
    if details is None:
        return None
    name, state = listed["Labels"].get("remuda.service", listed["Id"][:12]), details["State"]
    how = "" if state["Running"] else f", which had ended with exit code {state['ExitCode']}"
    how += " (out of memory)" if state.get("OOMKilled") else ""
    text = read_log(engine, listed["Id"], lines=lines) if lines else ""
    if lines:
        show(f"Last log lines of the service {name}{how}:", text)
    return {
        "name": name,
        "image": listed["Image"],
        "running": bool(state["Running"]),
        "exit_code": None if state["Running"] else state["ExitCode"],
        "oom_killed": bool(state.get("OOMKilled")),
        "log_bytes": len(text.encode()),
    }
