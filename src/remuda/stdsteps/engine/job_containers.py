"""Names, labels and removal of the containers and the network of a job. Names are derived from the job and the
container's role, so a container can be removed even if the step that created it was killed. Labels contain the machine,
the job's folder and the latest end of the job; a container whose folder is gone or whose time is over is removed by the
next step that uses the engine (`sweep`).

If the engine is down, its containers may still run. Those on this machine are found in /proc, by a variable that each
of them has, or by the mount of the job's working directory, which they cannot hide. Killing their first process ends
all of their processes (`kill_without_engine`)."""

import contextlib
import hashlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.lib.dataclass import dataclass
from remuda.lib.hidden_mark import is_hidden
from remuda.lib.safe_paths import read_mounts
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.container.options import network_config
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError, EngineRefusedError

MARK = "REMUDA_CONTAINER"
"""A variable of all processes of a container: the container's name."""
REMOVAL_SECONDS = 30.0
WORK_DIR = "remuda.work_dir"
"""The label with the working directory that is mounted in a container."""
JOB_ROLE, SERVICE_ROLE = "job", "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A job on a machine: the data from which the names and labels of its containers and network are made."""

    key: str
    job: str
    machine: str
    folder: str
    """A folder that exists as long as the job; may be empty."""

    def name(self, part: str = "") -> str:
        return f"remuda-{self.key}-{part}" if part else f"remuda-{self.key}"

    def labels(self, *, role: str, until: float) -> dict[str, str]:
        return {
            "remuda.key": self.key,
            "remuda.job": self.job,
            "remuda.machine": self.machine,
            "remuda.folder": self.folder,
            "remuda.role": role,
            "remuda.until": str(int(until)),
        }


def this_owner(job: str) -> Owner:
    """Return the job of this process. `job`: its id; if empty, REMUDA_EXCHANGE or the current folder identifies it."""
    folder = os.environ.get("REMUDA_EXCHANGE", "")
    machine = _digest(_machine_id(), socket.gethostname())
    key = _digest(machine, job or folder or str(Path.cwd()))
    return Owner(key=key, job=os.environ.get("CI_JOB_ID", "") or job, machine=machine, folder=folder)


def short_digest(text: str) -> str:
    return _digest(text)[:8]


def is_leftover(labels: Mapping[str, str], *, now: float, exists: Callable[[str], bool]) -> bool:
    """True if the job of a container on this machine is over, judged by the container's labels: the job's folder does
    not exist any more (`exists` checks a path), or the job's latest end is before `now`."""
    folder, until = labels.get("remuda.folder", ""), labels.get("remuda.until", "")
    return (bool(folder) and not exists(folder)) or (until.isdecimal() and now > int(until))


def sweep(engine: Engine, owner: Owner, note: Callable[[str], None] = say) -> None:
    """Remove containers and networks that ended jobs left on the machine of `owner`. If the engine refuses a removal,
    that is logged by `note`, and the next call tries it again. Raises EngineGoneError if the engine cannot be
    reached."""
    mine = {"label": [f"remuda.machine={owner.machine}"]}
    containers = engine.call("GET", "/containers/json", query={"all": 1, "filters": mine})
    networks = engine.call("GET", "/networks", query={"filters": mine})
    for entry, is_network in [*((each, False) for each in containers), *((each, True) for each in networks)]:
        if not is_leftover(entry["Labels"], now=time.time(), exists=_may_exist):
            continue
        try:
            if is_network:
                remove_network(engine, entry["Id"], note)
            else:
                job = entry["Labels"].get("remuda.job") or "?"
                note(f"Removing the container {_short_name(entry)}, which job {job} left behind")
                remove(engine, entry["Id"])
        except EngineGoneError:
            raise
        except StepError as error:
            note(f"WARNING: cannot remove a container or network that an earlier job left behind: {error}")


def remove_of_folder(engine: Engine, folder: Path) -> int:
    """Remove all containers and networks of jobs whose own folder is in `folder`; returns how many there were."""
    mine = {"label": ["remuda.folder"]}
    count = 0
    for kind in ("containers/json", "networks"):
        for entry in engine.call("GET", f"/{kind}", query={"all": 1, "filters": mine}):
            if Path(entry["Labels"]["remuda.folder"]).is_relative_to(folder):
                (remove_network if kind == "networks" else remove)(engine, entry["Id"])
                count += 1
    return count


def free_folder(host: str, folder: str) -> None:
    """Remove all containers that earlier jobs left with this working directory mounted, because their processes must
    not run while a step with more rights works in the directory. `host`: the engine's address."""
    engine = Engine(host)
    labels = [f"remuda.machine={this_owner('').machine}", f"{WORK_DIR}={folder}"]
    for container in engine.call("GET", "/containers/json", query={"all": 1, "filters": {"label": labels}}):
        job = container["Labels"].get("remuda.job") or "?"
        say(f"Removing the container {_short_name(container)}, which job {job} left behind")
        remove(engine, container["Id"])


def remove(engine: Engine, name: str) -> bool:
    """Kill and remove a container with its volumes, and wait until it is gone. Returns False if it does not exist.
    Raises PlatformError if the engine does not finish in time."""
    try:
        engine.call("DELETE", f"/containers/{name}", query={"force": 1, "v": 1})
        return True
    except EngineRefusedError as error:
        if error.status == 404:
            return False
        if error.status != 409:
            raise
    # It is being removed already.
    until = time.monotonic() + REMOVAL_SECONDS
    while time.monotonic() < until:
        if inspect(engine, name) is None:
            return True
        time.sleep(0.1)
    raise PlatformError(f"the container engine did not remove the container {name} in {REMOVAL_SECONDS:.0f} s")


def inspect(engine: Engine, name: str) -> dict[str, Any] | None:
    """Return the engine's JSON description of a container; None if it does not exist."""
    try:
        container: dict[str, Any] = engine.call("GET", f"/containers/{name}/json")
    except EngineRefusedError as error:
        if error.status == 404:
            return None
        raise
    return container


def pause(engine: Engine, name: str) -> None:
    """Pause all processes of a container, if it runs and is not paused."""
    container = inspect(engine, name)
    if container is not None and container["State"]["Running"] and not container["State"].get("Paused"):
        engine.call("POST", f"/containers/{name}/pause")


def resume(engine: Engine, name: str) -> None:
    container = inspect(engine, name)
    if container is not None and container["State"].get("Paused"):
        engine.call("POST", f"/containers/{name}/unpause")


def make_network(engine: Engine, owner: Owner, *, until: float, options: Mapping[str, Any] | None = None) -> str:
    """Return the name of the job's network, created if missing. `until`: the job's latest end. `options`: MTU, IPv6."""
    name = owner.name()
    with contextlib.suppress(EngineRefusedError):
        engine.call("GET", f"/networks/{name}")
        return name
    body = {"Name": name, "CheckDuplicate": True, "Labels": owner.labels(role="network", until=until)}
    body |= network_config(options or {})
    try:
        engine.call("POST", "/networks/create", body=body)
    except EngineRefusedError as error:
        if error.status != 409:
            raise PlatformError(f"cannot create the job's network: {error}") from None
    return name


def remove_network(engine: Engine, name: str, note: Callable[[str], None] = say) -> None:
    """Remove a network, if it exists; if a container uses the network, only warn."""
    try:
        engine.call("DELETE", f"/networks/{name}")
    except EngineRefusedError as error:
        if error.status not in (403, 404, 409):
            raise
        if error.status != 404:
            note(f"WARNING: the network {name} is still in use and is not removed: {error}")


def end_without_engine(names: list[str], error: EngineGoneError, engine: Engine) -> None:
    """Kill the containers with these names because their engine is down (`error`). Raises PlatformError if they may
    still run: the engine is on another machine, or this process is not root."""
    say(f"WARNING: {error}")
    killed = kill_without_engine(names) if engine.is_local else 0
    if engine.is_local and os.geteuid() == 0:
        say(
            f"The processes of {killed} container(s) of this job were killed without the engine. When the engine is "
            "back, the engine or the next job with a container on this machine removes the containers."
        )
    else:
        raise PlatformError(
            "containers of this job may still run, and this process cannot kill them without the engine; the next "
            "job with a container on this machine removes them when the engine is back"
        )


def kill_without_engine(names: list[str]) -> int:
    """Kill the containers on this machine that have one of these names, or have the current working directory mounted.
    Works while the engine is down. Returns the number of killed containers."""
    marks = [f"{MARK}={name}".encode() for name in names]
    work_dir = find_mount(os.getcwd(), _mounts("self"))
    killed = 0
    for pid, env in _first_processes():
        if any(mark in env for mark in marks) or (work_dir and work_dir in _mounts(str(pid)).values()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                _thaw(pid)
                killed += 1
    return killed


def _thaw(pid: int) -> None:
    """Unfreeze the paused container of a process: with cgroups v1, a killed process in it exits only after that."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, kinds, group = line.split(":", 2)
            if "freezer" in kinds.split(","):
                Path(f"/sys/fs/cgroup/freezer{group}/freezer.state").write_text("THAWED")


def find_names_without_engine(prefix: str) -> list[str]:
    """Return the names of running containers whose name begins with `prefix`, read from /proc."""
    start = f"{MARK}={prefix}".encode()
    return [
        entry.partition(b"=")[2].decode() for _, env in _first_processes() for entry in env if entry.startswith(start)
    ]


def _first_processes() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the id and the environment of process 1 of every PID namespace except that of this program."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            numbers = next(
                line.split()[1:] for line in (folder / "status").read_bytes().splitlines() if line.startswith(b"NSpid:")
            )
            if len(numbers) > 1 and numbers[-1] == b"1":
                yield int(folder.name), (folder / "environ").read_bytes().split(b"\0")


def find_mount(folder: str, mounts: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Return the device of a folder and the folder's path on that device: the form in which /proc/PID/mountinfo lists a
    bind mount of the folder in a container. `mounts`: device and path by mount point. None if the folder is a mount
    point itself: then it is listed for processes outside of containers, too, and identifies no container."""
    point = max((path for path in mounts if Path(folder).is_relative_to(path)), key=len, default="/")
    if point == folder:
        return None
    device, top = mounts.get(point, ("", "/"))
    return device, os.path.normpath(os.path.join(top, os.path.relpath(folder, point)))


def _mounts(pid: str) -> dict[str, tuple[str, str]]:
    try:
        text = Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return {}
    return read_mounts(text)


def _may_exist(path: str) -> bool:
    """True if the path exists or this process cannot check: the folder belongs to another user's agent, or is hidden by
    the sandbox in which this program runs."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return is_hidden(path)
    except OSError:
        return True
    return True


def _short_name(container: Mapping[str, Any]) -> str:
    return str(next(iter(container.get("Names") or ()), container["Id"][:12])).lstrip("/")


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
