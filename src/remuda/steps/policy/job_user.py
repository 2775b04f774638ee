"""The user that the steps of a job run as if the agent is root: one who cannot access the agent's files and processes.

The manager decides which user a job gets. It may be a number without an entry in the machine's user list, so that each
slot for a job can have its own user."""

import os
import pwd
import stat
from dataclasses import field
from pathlib import Path

from remuda.lib.dataclass import dataclass
from remuda.lib.safe_paths import close_after, open_folder, walk
from remuda.steps.errors import AgentError, BadRequestError

LARGEST_ID = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUser:
    """The user that steps run as, if it is not the agent's own."""

    uid: int
    gid: int
    env: dict[str, str] = field(default_factory=dict)
    """USER, LOGNAME and HOME of a user in the machine's user list, which the job's variables override. No HOME if that
    folder does not exist."""


def parse_run_as(text: str, *, agent_uid: int | None = None) -> JobUser | None:
    """Parse a user name, UID or UID:GID; None for an empty text. Raises BadRequestError if there is no such user, it is
    root, or the agent (`agent_uid`, by default of this process) is not root and so cannot switch users."""
    if not text:
        return None
    own = os.geteuid() if agent_uid is None else agent_uid
    person = _numeric(text) if text.replace(":", "", 1).isdecimal() else _find_named(text)
    if own != 0:
        raise BadRequestError(f"run_as: this agent is user {own}, not root, so it cannot start steps as {text}")
    if person.uid == 0 or person.gid == 0:
        raise BadRequestError("run_as: steps must not run as root; name another user")
    return person


def hand_over(folder: Path, person: JobUser, opened: int | None = None, *, closed: bool = False) -> None:
    """Make `person` the owner of a folder and its content, without following links. Raises AgentError if a parent
    folder is closed to that user. `opened`: the folder's descriptor, if the caller has one. `closed`: set the folder's
    mode to 0700, so that no other user can enter, whatever the modes of the content."""
    if opened is None:
        with close_after(_open(folder)) as descriptor:
            hand_over(folder, person, descriptor, closed=closed)
        return
    if (barrier := _barrier(folder, person)) is not None:
        raise AgentError(
            f"steps run as user {person.uid}, who cannot reach {folder}: {barrier} is closed to others. "
            "Use a folder whose parents everybody may search, for example by builds_dir"
        )
    if os.fstat(opened).st_uid != person.uid:
        for descriptor, names, _ in walk(opened):
            for name in names:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                # A file with a second name may be somebody else's.
                if status.st_uid != person.uid and (status.st_nlink == 1 or stat.S_ISLNK(status.st_mode)):
                    os.chown(name, person.uid, person.gid, dir_fd=descriptor, follow_symlinks=False)
            # The folder itself last: until then the user cannot change anything in it.
            os.fchown(descriptor, person.uid, person.gid)
    if closed:
        os.fchmod(opened, 0o700)


def _open(folder: Path) -> int:
    try:
        return open_folder(str(folder))
    except NotADirectoryError:
        raise AgentError(f"{folder} must be a folder of the job, but is a link or a file; remove it") from None


def _numeric(text: str) -> JobUser:
    uid, colon, gid = text.partition(":")
    if not uid or (colon and not gid) or max(int(uid), int(gid or 0)) > LARGEST_ID:
        raise BadRequestError(f"run_as: {text!r} is not a user; write a name, UID or UID:GID")
    try:
        entry = pwd.getpwuid(int(uid))
    except KeyError:
        return JobUser(uid=int(uid), gid=int(gid or uid))
    return JobUser(uid=entry.pw_uid, gid=int(gid) if gid else entry.pw_gid, env=_env(entry))


def _find_named(text: str) -> JobUser:
    try:
        entry = pwd.getpwnam(text)
    except KeyError:
        raise BadRequestError(
            f"run_as: there is no user {text!r} on this machine; create it, or name another"
        ) from None
    return JobUser(uid=entry.pw_uid, gid=entry.pw_gid, env=_env(entry))


def _env(entry: pwd.struct_passwd) -> dict[str, str]:
    home = {"HOME": entry.pw_dir} if os.path.isdir(entry.pw_dir) else {}
    return {"USER": entry.pw_name, "LOGNAME": entry.pw_name} | home


def _barrier(folder: Path, person: JobUser) -> Path | None:
    """Return the outermost parent folder that the user has no permission to enter; None if there is none."""
    for parent in reversed(folder.absolute().parents):
        status = parent.stat()
        if status.st_uid == person.uid:
            bit = stat.S_IXUSR
        elif status.st_gid == person.gid:
            bit = stat.S_IXGRP
        else:
            bit = stat.S_IXOTH
        if not status.st_mode & bit:
            return parent
    return None
