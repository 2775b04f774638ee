"""Ends the services of a job: shows what each has printed last, removes them and the job's network.

Runs whatever happened before. Nothing here fails a job whose own work is done: what the engine refuses is a warning.
"""

from typing import Any

from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import tell
from remuda.stdsteps.container.logs import log_of, show
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
        job_containers.end_without_engine(job_containers.named_like(owner.name()), error, engine)


def _stop(engine: Engine, owner: Owner, lines: int) -> None:
    mine = {"label": [f"remuda.key={owner.key}"]}
    ended: list[dict[str, Any]] = []
    for one in engine.call("GET", "/containers/json", query={"all": 1, "filters": mine}):
        if one["Labels"].get("remuda.role") == SERVICE_ROLE and (told := _last_words(engine, one, lines)):
            ended.append(told)
        try:
            job_containers.remove(engine, one["Id"])
        except EngineRefusedError as error:
            say(f"WARNING: the container {one['Id'][:12]} could not be removed: {error}")
    job_containers.remove_network(engine, owner.name())
    tell(services=ended)


def _last_words(engine: Engine, listed: dict[str, Any], lines: int) -> dict[str, Any] | None:
    """Show a service's log: what became of it."""
    known = job_containers.inspect(engine, listed["Id"])
    if known is None:
        return None
    name, state = listed["Labels"].get("remuda.service", listed["Id"][:12]), known["State"]
    how = "" if state["Running"] else f", which had ended with exit code {state['ExitCode']}"
    how += " for want of memory" if state.get("OOMKilled") else ""
    text = log_of(engine, listed["Id"], lines=lines) if lines else ""
    if lines:
        show(f"Last lines of the service {name}{how}:", text)
    return {
        "name": name,
        "image": listed["Image"],
        "running": bool(state["Running"]),
        "exit_code": None if state["Running"] else state["ExitCode"],
        "oom_killed": bool(state.get("OOMKilled")),
        "log_bytes": len(text.encode()),
    }
