"""Removes the container that `container_open` made, with everything that runs in it and its volumes.

Called whatever happened before, also when nothing was opened or its opening was killed: the container is known by its
name. Before that, files that it left to another user are given to this one, where that one is not root and could not
remove them later. An engine that is gone is waited for a moment; then the container's processes are ended without it.
"""

import os
import time

from remuda.stdsteps import job_containers
from remuda.stdsteps.container_open import container_name, engine_address
from remuda.stdsteps.docker_api import Engine, EngineGoneError
from remuda.stdsteps.docker_exec import run_inside
from remuda.stdsteps.errors import StepError
from remuda.stdsteps.inputs import Inputs
from remuda.stdsteps.job_containers import this_owner
from remuda.stdsteps.speech import say

PATIENCE_SECONDS = 5.0
_GIVE_BACK = 'find "$1" ! -user "$2" -exec chown -h "$2:$3" {} +'


def run(inputs: Inputs) -> None:
    """The step."""
    # The other inputs are for opening; whatever is wrong with them must not keep the container.
    engine, owner = Engine(engine_address(inputs)), this_owner(inputs.text("job", ""))
    name = container_name(owner)
    try:
        _patiently_remove(engine, name)
        job_containers.sweep(engine, owner)
    except EngineGoneError as error:
        job_containers.end_without_engine([name], error, engine)


def _patiently_remove(engine: Engine, name: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if os.geteuid() != 0:
                _give_back(engine, name)
            if job_containers.remove(engine, name):
                say("The container is removed")
            return
        except EngineGoneError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.5)


def _give_back(engine: Engine, name: str) -> None:
    """Make files that processes of the container made, as other users, this user's own."""
    words = ["sh", "-c", _GIVE_BACK, "sh", os.getcwd(), str(os.geteuid()), str(os.getegid())]
    try:
        known = job_containers.inspect(engine, name)
        if known is not None and known["State"]["Running"]:
            run_inside(engine, name, words, user="0", seconds=600.0)
    except EngineGoneError:
        raise
    except StepError as error:
        say(f"WARNING: files that the container's users own could not be given back: {error}")
