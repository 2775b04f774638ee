"""How jobs of `remuda up` and `remuda run` are kept from the platform's own files: token, keys, database, journal.

Decided here: by what means (bubblewrap, else another user where this one is root, else by none, which is said loudly),
and which folders are the platform's. `hiding` does it with bubblewrap; as another user jobs run by `run_as`, as under
any manager. Imports nothing that takes time: the start of a run waits for it.
"""

import os
import stat
from pathlib import Path
from typing import Literal, NamedTuple

from remuda.cli.exits import BadInputError
from remuda.steps.policy import hidden_folders

Wanted = Literal["auto", "bubblewrap", "user", "none"]
OPTION = "--isolation"
FIRST_UID, LAST_UID = 60900, 60949
"""Numbers for the user of jobs, among those that neither Debian nor systemd gives to anybody."""


class Isolation(NamedTuple):
    """What was found to work."""

    kind: Wanted
    run_as: str = ""
    """The other user."""
    why: str = ""
    """Why there is nothing better."""

    def warning(self) -> str | None:
        """What has to be said loudly, if anything has."""
        if self.kind != "none":
            return None
        return (
            "WARNING: jobs can read the platform's own files, the administrator's token and the encryption keys among "
            f"them: {self.why}. Run only pipelines that you trust with them."
        )


def find_isolation(wanted: Wanted, folder: Path) -> Isolation:
    """The best that this machine can do for a platform in this folder; BadInputError where another is asked for."""
    if wanted == "none":
        return Isolation(kind="none", why=f"{OPTION} none")
    problems = []
    if wanted in ("auto", "bubblewrap"):
        if (problem := hidden_folders.problem()) is None:
            return Isolation(kind="bubblewrap")
        problems.append(f"{problem} (install it, or allow user namespaces)")
    if wanted in ("auto", "user"):
        if (problem := _user_problem(folder)) is None:
            return Isolation(kind="user", run_as=str(_free_uid()))
        problems.append(f"jobs cannot run as another user: {problem}")
    if wanted != "auto":
        raise BadInputError(f"{OPTION} {wanted}: {problems[0]}")
    return Isolation(kind="none", why="; ".join(problems))


def platform_places(folder: Path) -> tuple[str, ...]:
    """The folders of this platform, and those of others on this machine that are known."""
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    known = (f"{data}/remuda", runs_folder(), f"{home}/.gitlab-runner", "/etc/gitlab-runner", "/etc/remuda")
    return (str(folder.absolute()), *known)


def runs_folder() -> str:
    """Where the temporary folders of all runs of this user are, so that no job of one sees those of another."""
    import tempfile

    return f"{tempfile.gettempdir()}/remuda-runs-{os.getuid()}"


def around_run(folder: Path, manager: Path, snapshot: Path) -> tuple[str, ...]:
    """What stands before the command of a run's agent: it, and so every job, finds its own folders, and for reading
    the repositories that the run lends to its jobs."""
    kept = [manager / name for name in ("agent", "builds", "cache")]
    lent = [folder / "repositories", folder / "cell" / "repos", snapshot]
    for place in (manager, folder / "cell", *kept, *lent):
        place.mkdir(mode=0o700, exist_ok=True)
    return hidden_folders.hide(
        (),
        hidden=platform_places(folder),
        kept=[*map(str, kept), *_current_folder(folder)],
        lent=[*map(str, lent), *hidden_folders.own_places()],
        fixed=hidden_folders.own_code(),
    )


def open_to_jobs(folder: Path) -> None:
    """Let another user through the platform's folder to the jobs' own; all else in it is for its owner only."""
    for place in (folder, *(parent for parent in folder.parents if str(parent) == runs_folder())):
        place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o011)


def _current_folder(folder: Path) -> list[str]:
    """The repository of a run may lie below a hidden folder: inside a job of a platform it does."""
    current = os.getcwd()
    return [] if current in platform_places(folder) else [current]


def _free_uid() -> int:
    import pwd

    for uid in range(FIRST_UID, LAST_UID):
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    return LAST_UID


def _user_problem(folder: Path) -> str | None:
    """Why jobs cannot run as another user; None when they can."""
    if os.geteuid() != 0:
        return "only root can start them so"
    if not _has_user(FIRST_UID):
        return f"this container has no user {FIRST_UID}"
    if closed := closed_to_others(folder.absolute()):
        return f"{closed} is closed to others, and {folder} lies in it (give another folder with --data)"
    if closed := find_closed_code():
        return f"{closed} is closed to others, and what jobs need of this program lies in it"
    return None


def find_closed_code() -> Path | None:
    """The first folder that keeps other users from the code of this program."""
    places = (Path(place) for place in hidden_folders.own_places())
    return next((closed for place in places if (closed := closed_to_others(place / "any"))), None)


def closed_to_others(path: Path) -> Path | None:
    """The first folder on the way to it that not everybody may search; that of all runs does not count: it is ours."""
    for folder in reversed(path.parents):
        if str(folder) != runs_folder() and folder.exists() and not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def _has_user(uid: int) -> bool:
    """Whether this number is anybody's here: a container may have been given few."""
    with open("/proc/self/uid_map") as file:
        ranges = [list(map(int, line.split())) for line in file]
    return any(first <= uid < first + count for first, _, count in ranges)
