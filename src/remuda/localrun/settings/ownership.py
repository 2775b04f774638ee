"""Decides whether files that choose what runs are to be used: those of a repository, and the user's own settings.
Whoever can create a file in a folder above the current one could otherwise choose programs for the user to run, as
git's `safe.directory` explains."""

import os
import pwd
import stat
import subprocess
from pathlib import Path

from remuda.lib.exits import BadInputError
from remuda.localrun.sources.git_environment import quiet_environment


def refuse_foreign(file: Path, folder: Path, *owners: int) -> None:
    """Raise BadInputError if another user owns `file`, a file of the repository in `folder`, and git's `safe.directory`
    does not name the folder. `owners`: the owners of the file and of the folders that lead to it."""
    foreign = next((owner for owner in owners if owner not in _trusted_users()), None)
    if foreign is None or _is_safe_directory(folder):
        return
    raise BadInputError(
        f"{file}: it, or its folder, belongs to {_name(foreign)}, who could choose with it what your jobs run; if you "
        f"trust it, run `git config --global --add safe.directory {folder}`, or change the owner with chown"
    )


def refuse_writable(file: Path, status: os.stat_result) -> None:
    """Raise BadInputError if others than the user can change `file`, the user's own settings. `status`: its status. The
    private group of the user may: where each user has one, new files are writable for it."""
    is_shared = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    if is_shared or status.st_mode & stat.S_IWOTH:
        raise BadInputError(
            f"{file}: other users can change it, and choose with it how your jobs are isolated; run: chmod go-w {file}"
        )


def _is_private_group(group: int) -> bool:
    import grp

    try:
        user, entry = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == user and set(entry.gr_mem) <= {user}


def _trusted_users() -> set[int]:
    """Return the ids of the users who may choose what this process runs: its own, root, and the caller of sudo."""
    caller = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return {os.geteuid(), 0, *((int(caller),) if caller.isascii() and caller.isdigit() else ())}


def _name(user: int) -> str:
    try:
        return f"the user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"the user with the number {user}"


def _is_safe_directory(folder: Path) -> bool:
    """True if git's setting names the folder. As with git, only the files of the machine and of the user count."""
    trusted: set[str] = set()
    for place in ("--system", "--global"):
        command = ["git", "config", place, "--type=path", "-z", "--get-all", "safe.directory"]
        try:
            answer = subprocess.run(
                command, cwd="/", env=quiet_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
        except FileNotFoundError:
            return False
        for value in answer.stdout.split(b"\0")[:-1]:
            # An empty value forgets those before it.
            trusted = {*trusted, os.fsdecode(value)} if value else set()
    return bool(trusted & {"*", str(folder), os.path.realpath(folder)})
