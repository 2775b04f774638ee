"""Removes the container that `container_open` made, with everything that runs in it and its volumes.

Called whatever happened before, also when nothing was opened or its opening was killed: the container is known by its
name. Files that its users made in the working directory are given to whom the directory belongs, unless that is root:
another one could not remove them later. An engine that is gone is waited for a moment; then the container's processes
are ended without it.
"""

import contextlib
import os
import time

from remuda.lib.safe_paths import MovedError, close_after, open_folder, walk
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import Inputs
from remuda.stdsteps.common.log import say
from remuda.stdsteps.container.open import container_name, engine_address
from remuda.stdsteps.engine import job_containers
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError
from remuda.stdsteps.engine.docker_exec import run_inside
from remuda.stdsteps.engine.job_containers import this_owner

PATIENCE_SECONDS = 5.0
_GIVE_BACK = 'find "$1" ! -user "$2" -exec chown -h "$2:$3" {} +'


def run(inputs: Inputs) -> None:
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
                _give_back_from_inside(engine, name)
            if job_containers.remove(engine, name):
                say("The container is removed")
            break
        except EngineGoneError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.5)
    if os.geteuid() == 0:
        give_back(".")


def give_back(folder: str) -> None:
    """As root: everything in a tree to the owner of its root."""
    with contextlib.suppress(MovedError), close_after(open_folder(folder)) as top:
        owner = os.fstat(top)
        if owner.st_uid == 0:
            return
        for place, names, _ in walk(top):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(name, dir_fd=place, follow_symlinks=False).st_uid != owner.st_uid:
                        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=place, follow_symlinks=False)
            if os.fstat(place).st_uid != owner.st_uid:
                os.fchown(place, owner.st_uid, owner.st_gid)


def _give_back_from_inside(engine: Engine, name: str) -> None:
    """As any other user: the container's root can do what this one cannot."""
    words = ["sh", "-c", _GIVE_BACK, "sh", os.getcwd(), str(os.geteuid()), str(os.getegid())]
    try:
        known = job_containers.inspect(engine, name)
        if known is not None and known["State"]["Running"]:
            job_containers.resume(engine, name)
            run_inside(engine, name, words, user="0", seconds=600.0)
    except EngineGoneError:
        raise
    except StepError as error:
        say(f"WARNING: files that the container's users own could not be given back: {error}")
