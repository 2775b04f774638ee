"""Runs one command in a container, so that it looks like a process of this machine.

`remuda-step container_exec ENGINE CONTAINER SHARED FILE`, where FILE is JSON with `command`, `work_dir` and `env`, and
SHARED a folder that the container's user must be able to use (empty: it is root and can). The output is the command's,
unbuffered, and so is the exit code. SIGTERM ends what the command started there: TERM to its session, KILL after five
seconds; this program ends when nothing of it is left.

The command's first process is found by its number in the container, which it prints before it becomes the command: an
exec is the leader of a session of its own, so that number is also the session's. Nothing but sh is needed inside.

A command may end with any exit code, so an engine that fails is told apart by the file that REMUDA_FAILURE names, which
no job can reach.
"""

import json
import os
import re
import select
import signal
import time
from typing import Any

from remuda.lib.safe_paths import open_plain
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.outputs import tell_failure
from remuda.stdsteps.common.sizes import in_words
from remuda.stdsteps.common.termination import Told
from remuda.stdsteps.container.file_access import share
from remuda.stdsteps.engine import docker_exec, job_containers
from remuda.stdsteps.engine.docker_api import STDERR, Engine, EngineGoneError, EngineRefusedError, Stream

GRACE_SECONDS = 5.0
LOOK_SECONDS = 5.0
"""How often a command that prints nothing is looked at; its end is told by the engine."""
POLL_SECONDS = 0.1
NOTICE_SECONDS = 1.0
"""How long an engine may take to notice the end of a container whose processes are dead."""
KILLED = 128 + signal.SIGKILL
ENDED = 128 + signal.SIGTERM
# Both outputs are one stream, because the engine would pass two on in an order of its own.
_LEADER = 'printf "%s\\n" "$$"; exec "$@" 2>&1'
# Signals every process of a session and prints the numbers of those that were there; zombies are none.
_SIGNAL_SESSION = r"""
for _p in /proc/[0-9]*; do
  { read -r _line <"$_p/stat"; } 2>/dev/null || continue
  _rest=${_line##*) }
  set -- "$1" "$2" $_rest
  if [ "$6" = "$1" ] && [ "$3" != Z ] && [ "$3" != X ]; then
    kill -"$2" "${_p#/proc/}" 2>/dev/null
    echo "${_p#/proc/}"
  fi
  set -- "$1" "$2"
done
"""
_OOM_KILLS = "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null"
NO_QUESTION = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Users outside and inside differ; git would refuse the job's own repository for that."""


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) != 4:
            raise StepError("container_exec needs an engine, a container, a folder and a file")
        host, container, shared, file = arguments
        # The container can put something else in its place: a link to another job's would bring that one's variables.
        with open(open_plain(file), "rb") as opened:
            request = json.loads(opened.read())
        if shared:
            share(shared)
        return _run(Engine(host), container, request)
    except PlatformError as error:
        tell_failure(error)
        raise


def _run(engine: Engine, container: str, request: dict[str, Any]) -> int:
    told = Told()
    env = request["env"] if "GIT_CONFIG_COUNT" in request["env"] else NO_QUESTION | request["env"]
    if told:
        return ENDED
    try:
        number, stream = docker_exec.begin(
            engine,
            container,
            ["sh", "-c", _LEADER, "sh", *request["command"]],
            work_dir=request["work_dir"],
            env=env,
        )
    except EngineRefusedError as error:
        raise refusal(error, container) from None
    command = _Command(engine, container, number, stream)
    try:
        code = command.follow(told)
    except EngineGoneError as error:
        raise EngineGoneError(f"{error}. The command ran when that happened; how it ended is not known") from None
    except EngineRefusedError as error:
        if error.status != 404:
            raise
        raise StepError("the container has ended, and the command with it") from None
    if command.session is None:
        raise StepError(f"the command could not be started in the container: {command.unread.decode(errors='replace')}")
    if code in (KILLED, ENDED) and not told:
        _explain(engine, container)
    return code if code or not told else ENDED


class _Command:
    """A command that runs in the container."""

    def __init__(self, engine: Engine, container: str, number: str, stream: Stream) -> None:
        self.session: str | None = None
        self.unread = b""
        """What came before the session was known."""
        self._engine = engine
        self._container = container
        self._number = number
        self._stream = stream

    def follow(self, told: Told) -> int:
        """Pass its output on until it has ended, or end it."""
        ended_by: float | None = None
        is_killed = False
        looked = time.monotonic()
        if self._stream.has_more:
            self._pass_on()
        while True:
            patience = LOOK_SECONDS if ended_by is None else POLL_SECONDS
            ready, _, _ = select.select([self._stream.fileno(), told.fileno()], [], [], patience)
            if told.fileno() in ready:
                told.empty()
            if self._stream.fileno() in ready:
                if not self._pass_on():
                    break
                looked = time.monotonic()
            elif time.monotonic() - looked >= patience:
                looked = time.monotonic()
                if not docker_exec.is_running(self._engine, self._number):
                    break
            if told and self.session is not None:
                if ended_by is None:
                    ended_by = time.monotonic() + GRACE_SECONDS
                    self._signal("TERM")
                elif not is_killed and time.monotonic() >= ended_by:
                    is_killed = True
                    self._signal("KILL")
        code = docker_exec.exit_code(self._engine, self._number)
        if told and self.session is not None:
            self._end_rest(ended_by)
        return code

    def _pass_on(self) -> bool:
        """What has come, to our own output; False at its end."""
        parts = self._stream.read(0.0)
        if parts is None:
            return False
        for kind, data in parts:
            if self.session is None and kind != STDERR:
                self.unread += data
                first, line, data = self.unread.partition(b"\n")
                if not line or not first.isdigit():
                    continue
                self.session, self.unread = first.decode(), b""
            write(kind, data)
        return True

    def _end_rest(self, kill_at: float | None) -> None:
        """What the command's first process left behind when it ended."""
        kill_at = time.monotonic() if kill_at is None else kill_at
        while self._signal("0"):
            if time.monotonic() >= kill_at:
                self._signal("KILL")
            time.sleep(POLL_SECONDS)

    def _signal(self, name: str) -> list[str]:
        """Send a signal to the session: the processes that were there."""
        assert self.session is not None
        return signal_session(self._engine, self._container, self.session, name)


def signal_session(engine: Engine, container: str, session: str, name: str) -> list[str]:
    """Send a signal to every process of a session in a container: the processes that were there."""
    try:
        _, output = docker_exec.run_inside(
            engine, container, ["sh", "-c", _SIGNAL_SESSION, "sh", session, name], user="0"
        )
    except EngineRefusedError as error:
        if error.status in (404, 409):
            return []  # the container has ended, and everything in it
        raise
    return output.decode().split()


def write(place: int, data: bytes) -> None:
    while data:
        data = data[os.write(place, data) :]


def refusal(error: EngineRefusedError, container: str) -> StepError:
    """Why nothing can be started there."""
    if error.status == 404:
        return StepError(f"the container {container[:12]} is gone: it has ended, or somebody removed it")
    if error.status == 409:
        return StepError(f"the container {container[:12]} does not run any more: {error}")
    return error


def _explain(engine: Engine, container: str) -> None:
    """Why a command was killed that nobody here wanted to end."""
    until = time.monotonic() + NOTICE_SECONDS
    while (known := job_containers.inspect(engine, container)) and known["State"]["Running"]:
        if time.monotonic() >= until:
            break
        time.sleep(POLL_SECONDS)
    else:
        say("ERROR: the container has ended, and the command with it")
        return
    # The engine tells of this only when a container ends.
    _, told = docker_exec.run_inside(engine, container, ["sh", "-c", _OOM_KILLS])
    if re.search(rb"^oom_kill [1-9]", told, re.MULTILINE):
        limit = known["HostConfig"].get("Memory") or 0
        words = f" of {in_words(limit)}" if limit else ""
        say(f"The kernel has killed processes of this container: they used more memory than its limit{words}")
