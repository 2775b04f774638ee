"""The step `container_close`: removes the container that `container_open` created, with its processes and volumes, even
if opening failed or was killed. Files that users of the container created in the working directory are given to the
directory's owner, unless that is root, because the owner could not delete them otherwise. An unreachable engine is
waited for; after `PATIENCE_SECONDS` the container's processes are killed without the engine."""

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
GIVE_BACK = """
find_id() {
  while read -r inside outside count; do
    test "$1" -lt "$outside" || test "$1" -ge $((outside + count)) || echo $(($1 - outside + inside))
  done < "/proc/self/$2"
}
user=$(find_id "$2" uid_map) group=$(find_id "$3" gid_map)
find "$1" ! -user "${user:-$2}" -exec chown -h "${user:-$2}:${group:-$3}" {} +
"""
"""Gives all files of a folder (first argument) to a user and a group of the machine. In the container of a rootless
engine these have other numbers."""


def run(inputs: Inputs) -> None:
    # The other inputs are for `container_open` and are not checked: the container must be removed in any case.
    engine, owner = Engine(engine_address(inputs)), this_owner(inputs.text("job", ""))
    name = container_name(owner)
    try:
        _remove_with_retries(engine, name)
        job_containers.sweep(engine, owner)
    except EngineGoneError as error:
        job_containers.end_without_engine([name], error, engine)


def _remove_with_retries(engine: Engine, name: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if os.geteuid() != 0:
                _restore_ownership_inside(engine, name)
            if job_containers.remove(engine, name):
                say("Removed the container")
            break
        except EngineGoneError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.5)
    if os.geteuid() == 0:
        restore_ownership(".")


def restore_ownership(folder: str) -> None:
    """Change the owner of everything in a tree to that of its top folder, unless that is root. Must run as root."""
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


def _restore_ownership_inside(engine: Engine, name: str) -> None:
    """Make this user the owner of the working directory's files, by a `chown` as root inside the container `name`; for
    agents that do not run as root. A failure is only a warning."""
    words = ["sh", "-c", GIVE_BACK, "sh", os.getcwd(), str(os.geteuid()), str(os.getegid())]
    try:
        state = job_containers.inspect(engine, name)
        if state is not None and state["State"]["Running"]:
            job_containers.resume(engine, name)
            run_inside(engine, name, words, user="0", seconds=600.0)
    except EngineGoneError:
        raise
    except StepError as error:
        say(f"WARNING: cannot change the owner of files that the container created: {error}")
