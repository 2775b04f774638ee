"""Hides the platform's own folders from jobs that run on the same machine as the whole platform.

`remuda up` and `remuda run` start jobs as the platform's own user, who could read the administrator's token, the keys
and the database. So bubblewrap mounts an empty folder over each hidden one. A process inside sees no process outside,
through whose /proc entry it could reach the folders, and has no privileges to unmount them. Background processes end
with the command. The platform's own code is read-only, so that jobs cannot change modules that are imported later.

`remuda run` runs its whole agent this way. Its user waits for the start, so this module imports no slow modules."""

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache

from remuda.lib.hidden_mark import HIDDEN_MARK

SEARCH = ("/usr/local/bin", "/usr/bin", "/bin")
# bubblewrap, which waits for the command, ignores the signals that end the command; `hide` resets them for the command.
STAY = 'trap "" HUP INT TERM; exec "$@"'
WITH_VARIABLES = f'exec 9<"$1"; shift; {STAY}'
"""Like `STAY`; the first argument is a file with bubblewrap options, which set the variables of the command."""
FROM_FILE = ("--args", "9")
_RIGHTS = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "SETFCAP"),
    *("NET_BIND_SERVICE", "SYS_CHROOT"),
)
"""Capabilities that root keeps: enough to install packages, but not to mount, to make devices, to open files by their
handles, or to read the machine's network, where the platform's tokens pass."""
_DEVICES = ("/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/dri")
"""Devices for root besides the harmless ones; through a disk device it could read every file."""

_SHARED_PREFIXES = ("/", "/usr", "/usr/local")


def find_program(name: str) -> str | None:
    """Return the path of a program in the system's own folders; PATH is not used. None if the program is not there."""
    paths = (f"{folder}/{name}" for folder in SEARCH)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def hide(
    command: Sequence[str],
    *,
    hidden: Iterable[str],
    writable: Iterable[str] = (),
    readable: Iterable[str] = (),
    fixed: Iterable[str] = (),
    env_file: str = "",
) -> tuple[str, ...]:
    """Return the command line that runs a command while `hidden` folders appear empty, except for `writable` and
    `readable` paths in them. `fixed` paths outside can be neither changed nor replaced. All are absolute. `env_file`: a
    file with bubblewrap options that set the variables; without it the environment is inherited."""
    covered = _outermost(os.path.realpath(path) for path in hidden if os.path.isdir(path))
    start = ["-c", WITH_VARIABLES, "remuda-sandbox", env_file] if env_file else ["-c", STAY, "remuda-sandbox"]
    words = ["/bin/sh", *start, find_program("bwrap") or "bwrap", *(FROM_FILE if env_file else ())]
    words += ["--dev-bind", "/", "/", "--unshare-pid", "--die-with-parent", "--proc", "/proc"]
    if os.geteuid() == 0:
        words += ["--cap-drop", "ALL", *_each("--cap-add", (f"CAP_{name}" for name in _RIGHTS))]
        words += ["--dev", "/dev", *bind("--dev-bind", filter(os.path.exists, _DEVICES))]
        words += ["--ro-bind-try", "/sys", "/sys"]
    else:
        words += ["--unshare-user"]
    words += _arrange(
        covered,
        writable=_below(covered, writable),
        readable=_below(covered, readable),
        fixed=_outside(covered, fixed),
    )
    for socket in filter(os.path.exists, _service_manager_sockets()):
        words += ["--ro-bind", os.devnull, socket]
    return (*words, "--", find_program("env") or "env", "--default-signal=HUP,INT,TERM", *command)


def own_code() -> tuple[str, ...]:
    """Return the folders of Remuda's program, except shared ones such as /usr, where jobs of root may install."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    home = os.path.realpath(os.path.expanduser("~"))
    shared = (*_SHARED_PREFIXES, home, f"{home}/.local")
    prefixes = (os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix))
    return (package, *(prefix for prefix in prefixes if prefix not in shared))


@cache
def own_places() -> tuple[str, ...]:
    """Return all paths that a process has to read in order to load Remuda's program."""
    from remuda.steps.pack.program import own_file  # imported here, because most starts of a run do not need it

    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    places = [sys.prefix, sys.base_prefix, os.path.realpath(sys.executable), os.path.dirname(package)]
    if (file := own_file()) is not None:
        places.append(os.path.realpath(file))
    return tuple(dict.fromkeys(places))


@cache
def problem() -> str | None:
    """Return why folders cannot be hidden on this machine; None if they can. Tries it once and caches the result."""
    if find_program("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    command = hide(["/bin/sh", "-c", ":"], hidden=["/var/tmp"])
    readable, writable = os.pipe2(os.O_CLOEXEC)
    try:
        child = os.posix_spawn(
            command[0],
            command,
            {"PATH": ":".join(SEARCH)},
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
            + [(os.POSIX_SPAWN_DUP2, writable, number) for number in (1, 2)],
        )
        os.close(writable)
        writable = -1
        with open(readable, "rb", closefd=False) as stream:
            complaint = stream.read(4096).decode(errors="replace").strip()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except OSError as error:
        return f"bubblewrap cannot be used: {error}"
    finally:
        os.close(readable)
        if writable >= 0:
            os.close(writable)
    return None if code == 0 else f"bubblewrap cannot be used: {complaint or code}"


def _service_manager_sockets() -> tuple[str, ...]:
    """Return the sockets of systemd and D-Bus, by which a process could start programs that see hidden folders."""
    if (uid := os.geteuid()) == 0:
        return ("/run/systemd/private", "/run/dbus/system_bus_socket")
    return (f"/run/user/{uid}/bus", f"/run/user/{uid}/systemd/private")


def _outermost(paths: Iterable[str]) -> list[str]:
    outermost: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{outer}/") for outer in outermost):
            outermost.append(path)
    return outermost


def _below(covered: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Return the real paths of those `paths` that are in one of the hidden folders `covered`."""
    real = (os.path.realpath(path) for path in paths)
    return [path for path in real if any(path == outer or path.startswith(f"{outer}/") for outer in covered)]


def _outside(covered: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Return the real paths of `paths` that are neither in the hidden folders `covered` nor in another of them."""
    real = [os.path.realpath(path) for path in paths]
    below = _below(covered, real)
    return _outermost(path for path in real if path not in below)


def _arrange(
    covered: Sequence[str], *, writable: Iterable[str], readable: Iterable[str], fixed: Sequence[str]
) -> list[str]:
    """Return the bubblewrap options that hide the `covered` folders, except for `readable` and `writable` paths in
    them; outer folders first. `fixed`: paths that the job must not change or replace. Every folder above a fixed path
    is mounted, too, because a mount point cannot be renamed."""
    above = {parent for path in fixed for parent in _parents(path)}
    mounts = [(path, 0, ["--dev-bind", path, path]) for path in above]
    mounts += [(path, 1, ["--ro-bind-try", path, path]) for path in fixed]
    mounts += [(path, 2, ["--tmpfs", path, "--dir", f"{path}/{HIDDEN_MARK}"]) for path in covered]
    mounts += [(path, 3, ["--ro-bind-try", path, path]) for path in readable]
    mounts += [(path, 4, ["--bind-try", path, path]) for path in writable]
    return [word for _, _, words in sorted(mounts) for word in words]


def _parents(path: str) -> list[str]:
    names = path.strip("/").split("/")
    return ["/" + "/".join(names[:count]) for count in range(1, len(names))]


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def bind(option: str, paths: Iterable[str]) -> list[str]:
    """Return bubblewrap options that mount each path at the same path inside. `option`: such as `--ro-bind`."""
    return [word for path in paths for word in (option, path, path)]
