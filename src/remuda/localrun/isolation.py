"""Isolates the jobs of `remuda up` and `remuda run` from the platform's own files: token, keys, database, journal. Uses
bubblewrap (`remuda.steps.policy.hidden_folders`) if it works; else another user (`run_as`) if this process is root;
else nothing, with a warning. Imports only fast modules, because the start of a run waits for this one."""

import os
import stat
from pathlib import Path
from typing import Literal, NamedTuple

from remuda.lib.exits import BadInputError
from remuda.steps.policy import hidden_folders

IsolationChoice = Literal["auto", "bubblewrap", "user", "none"]
OPTION = "--isolation"
FIRST_UID, LAST_UID = 60900, 60949
"""User ids for jobs, from a range that neither Debian nor systemd assigns."""


class Isolation(NamedTuple):
    """How jobs are isolated from the platform's files on this machine: bubblewrap, another user, or not at all."""

    kind: IsolationChoice
    run_as: str = ""
    """The other user's id."""
    why: str = ""
    """Why there is no isolation."""

    def warning(self) -> str | None:
        """Return the warning to print if jobs are not isolated, else None."""
        if self.kind != "none":
            return None
        return (
            "WARNING: jobs can read the platform's own files, the administrator's token and the encryption keys among "
            f"them: {self.why}. Run only pipelines that you trust with them."
        )


def find_isolation(choice: IsolationChoice, folder: Path) -> Isolation:
    """Return the best isolation that works here for a platform with its data in `folder`. `choice`: the value of
    `--isolation`. Raises BadInputError if a method was chosen that does not work here."""
    if choice == "none":
        return Isolation(kind="none", why=f"{OPTION} none")
    problems = []
    if choice in ("auto", "bubblewrap"):
        if (problem := hidden_folders.problem()) is None:
            return Isolation(kind="bubblewrap")
        problems.append(f"{problem} (install it, or allow user namespaces)")
    if choice in ("auto", "user"):
        if (problem := _user_problem(folder)) is None:
            return Isolation(kind="user", run_as=str(_free_uid()))
        problems.append(f"jobs cannot run as another user: {problem}")
    if choice != "auto":
        raise BadInputError(f"{OPTION} {choice}: {problems[0]}")
    return Isolation(kind="none", why="; ".join(problems))


def platform_places(folder: Path) -> tuple[str, ...]:
    """Return the folders that jobs must not see: `folder`, the data of this platform; the default data folders of other
    platforms of this user; and the usual configuration folders of Remuda's services and of gitlab-runner."""
    home = os.path.expanduser("~")
    data = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    usual = (f"{data}/remuda", runs_folder(), f"{home}/.gitlab-runner", "/etc/gitlab-runner", "/etc/remuda")
    return (str(folder.absolute()), *usual)


def runs_folder() -> str:
    """Return the parent of this user's temporary run folders, hidden from jobs, so that none sees another run."""
    import tempfile

    return f"{tempfile.gettempdir()}/remuda-runs-{os.getuid()}"


def sandbox_command(folder: Path, manager: Path, snapshot: Path) -> tuple[str, ...]:
    """Return the bubblewrap arguments to put before the command line of a run's agent, and create the folders that they
    name. They hide the platform's folders from the agent and its jobs, except their own folders below `manager`
    (writable) and the folders with repositories to clone from: `snapshot` and two in `folder` (readable)."""
    writable = [manager / name for name in ("agent", "builds", "cache")]
    lent = [folder / "repositories", folder / "cell" / "repos", snapshot]
    for place in (manager, folder / "cell", *writable, *lent):
        place.mkdir(mode=0o700, exist_ok=True)
    return hidden_folders.hide(
        (),
        hidden=platform_places(folder),
        writable=[*map(str, writable), *_current_folder(folder)],
        readable=[*map(str, lent), *hidden_folders.own_places()],
        fixed=hidden_folders.own_code(),
    )


def open_to_jobs(folder: Path) -> None:
    """Let other users pass through the platform's folder, not list it: jobs reach their folders in it."""
    for place in (folder, *(parent for parent in folder.parents if str(parent) == runs_folder())):
        place.chmod(stat.S_IMODE(place.stat().st_mode) | 0o011)


def _current_folder(folder: Path) -> list[str]:
    """Return a list with the working directory, to which jobs may write; empty if it is a folder to hide from jobs
    (`platform_places(folder)`). One inside such a folder is returned: a job may itself call `remuda run`."""
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
    """Return why jobs of the platform at `folder` cannot run as another user; None if they can."""
    if os.geteuid() != 0:
        return "only root can start processes as another user"
    if not _has_user(FIRST_UID):
        return f"the user id {FIRST_UID} does not exist in this container"
    if closed := find_closed_folder(folder.absolute()):
        return f"{closed} is closed to others, and {folder} is in it (choose another folder with --data)"
    if closed := find_closed_code():
        return f"{closed} is closed to others, and files of this program that jobs need are in it"
    return None


def find_closed_code() -> Path | None:
    """Return the outermost folder above this code that other users (jobs) cannot enter; None if they can enter all."""
    places = (Path(place) for place in hidden_folders.own_places())
    return next((closed for place in places if (closed := find_closed_folder(place / "any"))), None)


def find_closed_folder(path: Path) -> Path | None:
    """Return the outermost parent folder of `path` that other users cannot enter; None if they can enter all.
    `runs_folder` is not checked, because `open_to_jobs` makes it passable."""
    for folder in reversed(path.parents):
        if str(folder) != runs_folder() and folder.exists() and not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


def _has_user(uid: int) -> bool:
    """True if the user id exists in this user namespace; a container may have few ids."""
    with open("/proc/self/uid_map") as file:
        ranges = [list(map(int, line.split())) for line in file]
    return any(first <= uid < first + count for first, _, count in ranges)
