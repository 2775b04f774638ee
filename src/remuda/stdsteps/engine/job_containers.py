"""What of an engine belongs to one job: names and labels of its containers and network, and how they are removed.

A name is derived from the job and the part that a container plays in it, so whoever is to remove one finds it without
having been told, also when the step that made it was killed. Labels say whose it is: the machine, the job's folder
there, and until when at the latest. A container whose job's folder is gone, or whose time is over, is a leftover and
is removed by the next step that uses the engine from that machine (`sweep`).

Where the engine is gone its containers may live on. Those of this machine are found by a variable that every one of
them is given, or by the job's working directory, which they have mounted and cannot hide, and their first process is
killed, which ends all others in it (`kill_without_engine`).
"""

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
from remuda.lib.safe_paths import read_mounts
from remuda.stdsteps.common.errors import PlatformError, StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.container.options import network_config
from remuda.stdsteps.engine.docker_api import Engine, EngineGoneError, EngineRefusedError

MARK = "REMUDA_CONTAINER"
"""The variable by which processes of a container are known: its value is the container's name."""
REMOVAL_SECONDS = 30.0
WORK_DIR = "remuda.work_dir"
"""The label of a container that has a job's working directory."""
JOB_ROLE, SERVICE_ROLE = "job", "service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A job on a machine, as far as an engine needs to know it."""

    key: str
    job: str
    machine: str
    folder: str
    """Exists as long as the job does; empty where there is none to look at."""

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
    """The job of this process. Steps that name no job are known by the folder that the steps of a job share."""
    folder = os.environ.get("REMUDA_EXCHANGE", "")
    machine = _digest(_machine_id(), socket.gethostname())
    key = _digest(machine, job or folder or str(Path.cwd()))
    return Owner(key=key, job=os.environ.get("CI_JOB_ID", "") or job, machine=machine, folder=folder)


def part_of(text: str) -> str:
    """A short name for something that is known by a long one."""
    return _digest(text)[:8]


def is_leftover(labels: Mapping[str, str], *, now: float, exists: Callable[[str], bool]) -> bool:
    """Whether something with these labels, of this machine, belongs to no job any more."""
    folder, until = labels.get("remuda.folder", ""), labels.get("remuda.until", "")
    return (bool(folder) and not exists(folder)) or (until.isdecimal() and now > int(until))


def sweep(engine: Engine, owner: Owner) -> None:
    """Remove what ended jobs of this machine left behind. What cannot be removed is left to the next."""
    mine = {"label": [f"remuda.machine={owner.machine}"]}
    containers = engine.call("GET", "/containers/json", query={"all": 1, "filters": mine})
    networks = engine.call("GET", "/networks", query={"filters": mine})
    for one, is_network in [*((one, False) for one in containers), *((one, True) for one in networks)]:
        if not is_leftover(one["Labels"], now=time.time(), exists=_may_exist):
            continue
        try:
            if is_network:
                remove_network(engine, one["Id"])
            else:
                job = one["Labels"].get("remuda.job") or "?"
                say(f"Removing the container {_short(one)}, which job {job} left behind")
                remove(engine, one["Id"])
        except EngineGoneError:
            raise
        except StepError as error:
            say(f"WARNING: what an earlier job left behind could not be removed: {error}")


def free_folder(host: str, folder: str) -> None:
    """Remove the containers of this machine that have this working directory, whosever they are: none may run while
    something of the platform works there."""
    engine = Engine(host)
    labels = [f"remuda.machine={this_owner('').machine}", f"{WORK_DIR}={folder}"]
    for one in engine.call("GET", "/containers/json", query={"all": 1, "filters": {"label": labels}}):
        say(f"Removing the container {_short(one)}, which job {one['Labels'].get('remuda.job') or '?'} left behind")
        remove(engine, one["Id"])


def remove(engine: Engine, name: str) -> bool:
    """Kill and remove a container with its volumes; False when there is none. Returns when it is gone."""
    try:
        engine.call("DELETE", f"/containers/{name}", query={"force": 1, "v": 1})
        return True
    except EngineRefusedError as error:
        if error.status == 404:
            return False
        if error.status != 409:
            raise
    # Somebody else removes it already.
    until = time.monotonic() + REMOVAL_SECONDS
    while time.monotonic() < until:
        if inspect(engine, name) is None:
            return True
        time.sleep(0.1)
    raise PlatformError(f"the container engine does not get on with removing the container {name}")


def inspect(engine: Engine, name: str) -> dict[str, Any] | None:
    """What the engine knows of a container; None when there is none."""
    try:
        known: dict[str, Any] = engine.call("GET", f"/containers/{name}/json")
    except EngineRefusedError as error:
        if error.status == 404:
            return None
        raise
    return known


def pause(engine: Engine, name: str) -> None:
    """Stop everything that runs in a container, until it is resumed."""
    known = inspect(engine, name)
    if known is not None and known["State"]["Running"] and not known["State"].get("Paused"):
        engine.call("POST", f"/containers/{name}/pause")


def resume(engine: Engine, name: str) -> None:
    """Let a container go on that was paused."""
    known = inspect(engine, name)
    if known is not None and known["State"].get("Paused"):
        engine.call("POST", f"/containers/{name}/unpause")


def make_network(engine: Engine, owner: Owner, *, until: float, options: Mapping[str, Any] | None = None) -> str:
    """The network of the job, made by the first that needs it."""
    name = owner.name()
    with contextlib.suppress(EngineRefusedError):
        engine.call("GET", f"/networks/{name}")
        return name
    wish = {"Name": name, "CheckDuplicate": True, "Labels": owner.labels(role="network", until=until)}
    wish |= network_config(options or {})
    try:
        engine.call("POST", "/networks/create", body=wish)
    except EngineRefusedError as error:
        if error.status != 409:
            raise PlatformError(f"the job's network cannot be made: {error}") from None
    return name


def remove_network(engine: Engine, name: str) -> None:
    """If it is there and nobody uses it."""
    try:
        engine.call("DELETE", f"/networks/{name}")
    except EngineRefusedError as error:
        if error.status not in (403, 404, 409):
            raise
        if error.status != 404:
            say(f"WARNING: the network {name} is still used and stays: {error}")


def end_without_engine(names: list[str], error: EngineGoneError, engine: Engine) -> None:
    """What can be done about containers when their engine is gone; raises where they may run on."""
    say(f"WARNING: {error}")
    killed = kill_without_engine(names) if engine.is_near else 0
    if engine.is_near and os.geteuid() == 0:
        say(
            f"The processes of {killed} container(s) of this job were ended without the engine. What it still knows "
            "of them is removed when it is back, by itself or by the next job with a container here."
        )
    else:
        raise PlatformError(
            "containers of this job may still run, and without the engine they cannot be ended from here; the next "
            "job with a container on this machine removes them once the engine is back"
        )


def kill_without_engine(names: list[str]) -> int:
    """Kill the first process of each container of this machine that has one of these names, or this process's working
    directory: how many there were."""
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
    """In a paused container a process that was killed dies only when it is let go on: so it is with control groups of
    version 1."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
            _, kinds, group = line.split(":", 2)
            if "freezer" in kinds.split(","):
                Path(f"/sys/fs/cgroup/freezer{group}/freezer.state").write_text("THAWED")


def named_like(prefix: str) -> list[str]:
    """Names of living containers of this machine that begin so, found without the engine."""
    start = f"{MARK}={prefix}".encode()
    return [
        entry.partition(b"=")[2].decode() for _, env in _first_processes() for entry in env if entry.startswith(start)
    ]


def _first_processes() -> Iterator[tuple[int, list[bytes]]]:
    """The first process of every process namespace but our own, with its environment."""
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
    """The device of a folder, and the folder's path on that device: so a bind mount of it is listed in mountinfo, here
    and in containers. None where the folder is a mount point, because every copy of these mounts lists it. Pure."""
    point = max((one for one in mounts if Path(folder).is_relative_to(one)), key=len, default="/")
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
    """Whether there may be such a folder: those of another user's agent cannot be looked at, and its jobs run on."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _short(container: Mapping[str, Any]) -> str:
    return str(next(iter(container.get("Names") or ()), container["Id"][:12])).lstrip("/")


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
