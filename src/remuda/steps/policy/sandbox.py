"""The sandbox of a job, made by bubblewrap: the system is read-only, and only the job's own folders are writable.

A step sees the system's programs and configuration, the job's working directory, its exchange folder (scripts, inputs
and outputs of steps), the packages of its steps (read-only), the folders that the request names (caches), an empty /tmp
and home, and its own processes.
Background processes end with the step. With `hidden`, only the platform's folders are hidden (`hidden_folders`). If no
sandbox can be made, the job is refused."""

import os
import subprocess
from collections.abc import Mapping, Sequence

from remuda.lib.dataclass import dataclass
from remuda.steps.errors import DefinitionError
from remuda.steps.policy import hidden_folders

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/sys")
_RESOLVER = "/run/systemd/resolve"
_HIDDEN_FOLDERS = ("/etc/gitlab-runner", "/etc/remuda")
_HIDDEN_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-")
_TEMPORARY = ("/tmp", "/var/tmp", "/run")
# bubblewrap, which waits for the step, ignores the signals that end a step; `_wrap` resets them for the step.
# Missing folders are made first, with the rights of the sandbox.
# The step's variables are in a file: a job's LD_PRELOAD must not affect these programs.
_STAY = (
    'exec 9<"$1"; shift; while [ "$1" != -- ]; do mkdir -p "$1"; shift; done; shift; trap "" HUP INT TERM; exec "$@"'
)
_TRY_SECONDS = 20
_usable: set[tuple[int | None, int | None, tuple[str, ...]]] = set()
"""Users and places for which a sandbox could be made."""
MOST_VARIABLES = 2500
"""bubblewrap takes 9000 words, three of them for a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    work_dir: str
    exchange: str
    inserted: str = ""
    """The exchange folder of inserted steps, which only they have."""
    packages: str = ""
    """The folder with the packages of the job's steps, which is read-only."""
    inserted_packages: str = ""
    """The folder with the packages of inserted steps, which only they have."""
    writable: tuple[str, ...] = ()
    """Folders of the job's project that stay, such as caches; created if they are missing."""
    hidden: tuple[str, ...] = ()
    """If not empty, only these folders are hidden, and everything else is as on the machine (`hidden_folders`)."""

    readable: tuple[str, ...] = ()
    """Files of the agent that the job sees, although the rest of the agent's data folder is hidden."""

    def wrap(
        self, command: Sequence[str], *, env_file: str, is_own: bool, is_inserted: bool = False
    ) -> tuple[str, ...]:
        """Return the command line that runs a command in the sandbox. `env_file` contains `variable_options`. `is_own`:
        show the code of Remuda, whose program it is. `is_inserted`: show files of steps that the policy added."""
        packages = (self.packages, *((self.inserted_packages,) if is_inserted else ()))
        shown = (*(hidden_folders.own_places() if is_own else ()), *self.readable, *filter(None, packages))
        writable = (self.work_dir, f"{self.work_dir}.tmp", self.exchange, *self.writable)
        if is_inserted:
            writable += (self.inserted,)
        missing = [folder for folder in self.writable if not os.path.isdir(folder)]
        if self.hidden:
            for folder in missing:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            fixed = hidden_folders.own_code()
            return hidden_folders.hide(
                command, hidden=self.hidden, writable=writable, readable=shown, fixed=fixed, env_file=env_file
            )
        return _wrap(command, env_file=env_file, shown=shown, writable=writable, missing=missing)


def variable_options(env: Mapping[str, str]) -> bytes:
    """Return the content of an `env_file`: bubblewrap options that set these variables. Raises DefinitionError if there
    are too many, or one contains a NUL, which would end the option: what follows it would be read as another option."""
    if len(env) > MOST_VARIABLES:
        raise DefinitionError(f"the step has {len(env)} variables; in a sandbox there can be {MOST_VARIABLES} at most")
    for name, value in env.items():
        if "\0" in name or "\0" in value:
            raise DefinitionError(f"variable {name!a} contains a NUL character, which no variable can have")
    return b"".join(b"--setenv\0%s\0%s\0" % (os.fsencode(name), os.fsencode(value)) for name, value in env.items())


def problem(uid: int | None = None, gid: int | None = None, *, shown: tuple[str, ...] = ()) -> str | None:
    """Return why no sandbox can be made in which the user `uid` can read the paths `shown`; None if one can. Only
    success is cached, because a failure may be temporary, such as a lack of processes."""
    if (uid, gid, shown) in _usable:
        return None
    why = _try_sandbox(uid, gid, shown)
    if why is None:
        _usable.add((uid, gid, shown))
    return why


def _try_sandbox(uid: int | None, gid: int | None, shown: tuple[str, ...]) -> str | None:
    if hidden_folders.find_program("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    command = _wrap(["/bin/sh", "-c", '[ $# = 0 ] || ls "$@" >/dev/null', "sh", *shown], shown=shown, writable=())
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TRY_SECONDS,
            check=False,
            env={"PATH": ":".join(hidden_folders.SEARCH)},
            user=uid,
            group=gid,
            extra_groups=None if uid is None else (),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be used: {error}"
    return (
        None if result.returncode == 0 else f"bubblewrap cannot be used: {result.stderr.strip() or result.returncode}"
    )


def _wrap(
    command: Sequence[str],
    *,
    shown: Sequence[str],
    writable: Sequence[str],
    missing: Sequence[str] = (),
    env_file: str = os.devnull,
) -> tuple[str, ...]:
    words = ["/bin/sh", "-c", _STAY, "remuda-sandbox", env_file, *missing, "--"]
    words += [hidden_folders.find_program("bwrap") or "bwrap", *hidden_folders.FROM_FILE]
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try", "--die-with-parent", "--cap-drop", "ALL"]
    for place in _SYSTEM:
        words += _bind_system(place)
    for place in _HIDDEN_FOLDERS:
        words += ["--tmpfs", place] if os.path.isdir(place) else []
    for place in _HIDDEN_FILES:
        words += ["--ro-bind", os.devnull, place] if os.path.isfile(place) else []
    for place in _TEMPORARY:
        words += ["--tmpfs", place]
    words += ["--ro-bind-try", _RESOLVER, _RESOLVER, "--proc", "/proc", "--dev", "/dev"]
    words += [*hidden_folders.bind("--ro-bind-try", shown), *hidden_folders.bind("--bind-try", writable)]
    return (*words, "--", hidden_folders.find_program("env") or "env", "--default-signal=HUP,INT,TERM", *command)


def _bind_system(place: str) -> list[str]:
    """Return bubblewrap options that show a system folder read-only. A link, such as `/bin`, stays a link."""
    if os.path.islink(place):
        return ["--symlink", os.readlink(place), place]
    return ["--ro-bind-try", place, place]
