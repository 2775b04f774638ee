"""Runs one command in a container, with the output and exit code of a local process: `remuda-step container_exec ENGINE
CONTAINER SHARED FILE`. FILE is JSON with `command`, `work_dir` and `env`. SHARED is a folder that the container's user
must be able to access (empty: the user is root). On SIGTERM all processes of the command get TERM, and KILL after five
seconds; this program exits when none of them is left.

A shell in the container, which needs only sh, prints its process id and then execs the command. Each exec is its own
session, so the id is also that of the session, by which all processes of the command are found. A command may exit with
any code, so a failure of the container engine is reported by the file that REMUDA_FAILURE names."""

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
from remuda.stdsteps.common.outputs import report_platform_failure
from remuda.stdsteps.common.sizes import format_size
from remuda.stdsteps.common.termination import Termination
from remuda.stdsteps.container.file_access import share
from remuda.stdsteps.engine import docker_exec, job_containers
from remuda.stdsteps.engine.docker_api import STDERR, Engine, EngineGoneError, EngineRefusedError, Stream

GRACE_SECONDS = 5.0
LOOK_SECONDS = 5.0
"""Interval between checks of a command that prints nothing. Usually the engine reports the end."""
POLL_SECONDS = 0.1
NOTICE_SECONDS = 1.0
"""How long an engine may take to notice the end of a container whose processes are dead."""
KILLED = 128 + signal.SIGKILL
ENDED = 128 + signal.SIGTERM
# stdout and stderr are one stream, because the engine would not keep their order.
_LEADER = 'printf "%s\\n" "$$"; exec "$@" 2>&1'
# Signals every process of a session and prints their ids. Zombies do not count.
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
TRUST_REPOSITORIES = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
"""Variables that make git trust every repository. Without them it refuses the job's own repository, because users
outside and inside of the container differ."""


def main(arguments: list[str]) -> int:
    try:
        if len(arguments) != 4:
            raise StepError("container_exec needs an engine, a container, a folder and a file")
        host, container, shared, file = arguments
        # The container can replace the file, for example by a link to the file of another job, with its variables.
        with open(open_plain(file), "rb") as opened:
            request = json.loads(opened.read())
        if shared:
            share(shared)
        return _run(Engine(host), container, request)
    except PlatformError as error:
        report_platform_failure(error)
        raise


def _run(engine: Engine, container: str, request: dict[str, Any]) -> int:
    termination = Termination()
    env = request["env"] if "GIT_CONFIG_COUNT" in request["env"] else TRUST_REPOSITORIES | request["env"]
    if termination:
        return ENDED
    try:
        exec_id, stream = docker_exec.begin(
            engine,
            container,
            ["sh", "-c", _LEADER, "sh", *request["command"]],
            work_dir=request["work_dir"],
            env=env,
        )
    except EngineRefusedError as error:
        raise explain_refusal(error, container) from None
    command = _Command(engine, container, exec_id, stream)
    try:
        code = command.follow(termination)
    except EngineGoneError as error:
        raise EngineGoneError(f"{error}. The command was running at that time; its exit code is unknown") from None
    except EngineRefusedError as error:
        if error.status != 404:
            raise
        raise StepError("the container ended while the command was running") from None
    command.session.check_started()
    if code in (KILLED, ENDED) and not termination:
        _explain(engine, container)
    return code if code or not termination else ENDED


class Session:
    """The session (group of processes) of a command in a container. Its first process prints the session's id as a line
    of digits. Before that line a shell may have printed warnings, such as one about an unknown locale."""

    def __init__(self) -> None:
        self.id = ""
        """Empty until the line with the id is complete."""
        self._unread = b""

    def strip_id(self, kind: int, data: bytes) -> bytes:
        """Return new output without the line of the session's id, and set `id` when that line is complete. `kind`: the
        stream of the output, 1 (stdout) or STDERR."""
        if self.id or kind == STDERR:
            return data
        self._unread += data
        *lines, rest = self._unread.split(b"\n")
        for index, line in enumerate(lines):
            if (number := line.strip()).isdigit():  # a terminal ends lines with \r\n
                self.id = number.decode()
                return b"\n".join([*lines[:index], *lines[index + 1 :], rest])
        return b""

    def check_started(self) -> None:
        """To be called after the end of the output. Raises StepError, with that output, if it has no session id: the
        command did not start."""
        if not self.id:
            text = self._unread.decode(errors="replace").strip()
            raise StepError(f"the command could not be started in the container: {text}")


class _Command:
    def __init__(self, engine: Engine, container: str, exec_id: str, stream: Stream) -> None:
        self.session = Session()
        self._engine = engine
        self._container = container
        self._exec_id = exec_id
        self._stream = stream

    def follow(self, termination: Termination) -> int:
        """Copy the command's output until it exits, and return its exit code. After a signal to this program,
        terminates the command: TERM first, KILL after `GRACE_SECONDS`."""
        kill_at: float | None = None
        is_killed = False
        checked_at = time.monotonic()
        if self._stream.has_more:
            self._pass_on()
        while True:
            timeout = LOOK_SECONDS if kill_at is None else POLL_SECONDS
            ready, _, _ = select.select([self._stream.fileno(), termination.fileno()], [], [], timeout)
            if termination.fileno() in ready:
                termination.drain()
            if self._stream.fileno() in ready:
                if not self._pass_on():
                    break
                checked_at = time.monotonic()
            elif time.monotonic() - checked_at >= timeout:
                checked_at = time.monotonic()
                if not docker_exec.is_running(self._engine, self._exec_id):
                    break
            if termination and self.session.id:
                if kill_at is None:
                    kill_at = time.monotonic() + GRACE_SECONDS
                    self._signal("TERM")
                elif not is_killed and time.monotonic() >= kill_at:
                    is_killed = True
                    self._signal("KILL")
        code = docker_exec.exit_code(self._engine, self._exec_id)
        if termination and self.session.id:
            self._end_rest(kill_at)
        return code

    def _pass_on(self) -> bool:
        """Copy available output of the command to stdout and stderr. Returns False at the end of the output."""
        parts = self._stream.read(0.0)
        for kind, data in parts or ():
            write(kind, self.session.strip_id(kind, data))
        return parts is not None

    def _end_rest(self, kill_at: float | None) -> None:
        """Wait, after the command's exit, until no process of its session is left; kill them from `kill_at` on (by
        `time.monotonic`; None: at once)."""
        kill_at = time.monotonic() if kill_at is None else kill_at
        while self._signal("0"):
            if time.monotonic() >= kill_at:
                self._signal("KILL")
            time.sleep(POLL_SECONDS)

    def _signal(self, name: str) -> list[str]:
        return signal_session(self._engine, self._container, self.session.id, name)


def signal_session(engine: Engine, container: str, session: str, name: str) -> list[str]:
    """Send a signal to every process of a session in a container, and return the ids of these processes. `session`: its
    id. `name`: the signal, such as TERM; 0 only lists the processes."""
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


def explain_refusal(error: EngineRefusedError, container: str) -> StepError:
    """Convert the engine's refusal to start a command to an error that says if the container is gone or has ended."""
    if error.status == 404:
        return StepError(f"the container {container[:12]} does not exist any more: it has ended or was removed")
    if error.status == 409:
        return StepError(f"the container {container[:12]} is not running: {error}")
    return error


def _explain(engine: Engine, container: str) -> None:
    """Log why a command was killed by others than this program: its container ended, or exceeded the memory limit."""
    until = time.monotonic() + NOTICE_SECONDS
    while (state := job_containers.inspect(engine, container)) and state["State"]["Running"]:
        if time.monotonic() >= until:
            break
        time.sleep(POLL_SECONDS)
    else:
        say("ERROR: the container ended while the command was running")
        return
    # The engine reports this only when a container ends.
    _, events = docker_exec.run_inside(engine, container, ["sh", "-c", _OOM_KILLS])
    if re.search(rb"^oom_kill [1-9]", events, re.MULTILINE):
        limit = state["HostConfig"].get("Memory") or 0
        words = f" of {format_size(limit)}" if limit else ""
        say(f"The kernel killed processes of this container: they used more memory than its limit{words}")
