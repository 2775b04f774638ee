"""Open, create, empty and remove files in folders that a job controls, without following the job's links.

A job can replace any folder it may change by a link, even while this process works there. So a path is resolved once up
to a folder that jobs cannot change. From there each folder is opened relative to its parent (`dir_fd`) with O_NOFOLLOW.
A job's folders may have mode 000 and be nested deeper than path length, recursion or open files allow: permissions are
restored through a descriptor, and only a few are open at a time. Emptying, removing and walking never enter a mount
point; `open_below` and `remove_below` do not check the folders on the way."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a folder for reading."""
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a folder without reading it; needs no permission on the folder itself."""
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_NAME = getattr(os, "O_PATH", _FILE) | os.O_CLOEXEC
"""Flags to open a name without opening the file itself."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OCTAL = re.compile(rb"\\([0-7]{3})")
"""How the kernel escapes a space and other characters in a path."""
_MOST_TRIES = 100
"""Number of attempts after which another process is assumed to keep replacing the name."""
_MOST_PASSES = 100_000
"""Number of passes after which another process is assumed to keep filling the folder; also the deepest nesting."""
_MOST_NEW = 1000
"""How many new names may appear in a folder while it is emptied."""


@contextmanager
def close_after(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_folder(name: str, *, dir_fd: int | None = None) -> int:
    """Open a folder; if unreadable, restore the owner's permissions (see `grant_owner`). Raises OSError for a link."""
    try:
        return os.open(name, FOLDER, dir_fd=dir_fd)
    except PermissionError:
        with close_after(os.open(name, _PLACE, dir_fd=dir_fd)) as place:
            grant_owner(place)
            return os.open(_through(place), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def grant_owner(folder: int) -> None:
    mode = stat.S_IMODE(os.fstat(folder).st_mode)
    if mode & 0o700 != 0o700:
        with suppress(OSError):
            # The only way for a descriptor that was opened without permissions.
            os.chmod(_through(folder), mode | 0o700)


def make_below(
    base: Path, relative: str, *, mode: int = 0o777, is_owned: bool = False, may_be_mounted: bool = False
) -> int:
    """Create a folder with its parents below `base`, a path that no job can change, and open it. Anything on the way
    that is not a folder is removed. `is_owned`: a parent folder of another user is removed, too, because that user
    could replace its children. `may_be_mounted`: a mount point on the way is not an error."""
    base.mkdir(parents=True, exist_ok=True)
    parts = _parts(relative)
    here = os.open(base, _PLACE & ~os.O_NOFOLLOW)
    try:
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            inner = _make(
                part,
                here,
                mode if is_last else 0o777,
                is_owned=is_owned and not is_last,
                may_be_mounted=may_be_mounted,
            )
            os.close(here)
            here = inner
        return os.open(_through(here), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(here)


def _make(name: str, above: int, mode: int, *, is_owned: bool, may_be_mounted: bool) -> int:
    for _ in range(_MOST_TRIES):
        with suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=above)
        try:
            folder = os.open(name, _PLACE, dir_fd=above)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            with suppress(FileNotFoundError, IsADirectoryError):
                os.unlink(name, dir_fd=above)
            continue
        try:
            if not may_be_mounted and _is_mounted(folder, above):
                raise OSError(errno.EBUSY, "it is a mount point; unmount it", name)
            if is_owned and os.fstat(folder).st_uid != os.geteuid():
                os.close(folder)
                folder = -1
                remove(name, dir_fd=above)
                continue
            grant_owner(folder)
        except BaseException:
            if folder >= 0:
                os.close(folder)
            raise
        return folder
    raise OSError(errno.EBUSY, "another process keeps replacing it", name)


def open_below(base: Path, relative: str) -> int:
    """Open a folder below `base`, which no job can change; restores permissions. OSError: it is missing, or a link."""
    here = os.open(base, _PLACE & ~os.O_NOFOLLOW)
    try:
        for part in _parts(relative):
            inner = os.open(part, _PLACE, dir_fd=here)
            os.close(here)
            here = inner
            grant_owner(here)
        return os.open(_through(here), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(here)


def remove_below(base: Path, relative: str) -> None:
    """Remove a file or folder below `base`, which no job can change, unless it is missing or a parent is no folder."""
    if "\0" in relative:
        return  # no path contains NUL, so it cannot exist
    *way, last = _parts(relative)
    try:
        above = open_below(base, "/".join(way))
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        return  # a link or a file on the way: the target is unreachable
    with close_after(above):
        remove(last, dir_fd=above)


def remove(name: str, *, dir_fd: int | None = None) -> None:
    """Remove a file, a link, or a folder with its contents. Does nothing if it does not exist."""
    for _ in range(_MOST_TRIES):
        try:
            os.unlink(name, dir_fd=dir_fd)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            # Which error a folder causes depends on the system.
            try:
                is_folder = stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
            except FileNotFoundError:
                return
            if not is_folder:
                raise
        else:
            return
        with suppress(FileNotFoundError, NotADirectoryError):
            _remove_folder(name, dir_fd)
            return
    raise OSError(errno.EBUSY, "another process keeps replacing it", name)


def remove_tree(path: Path | str, *, ignore_errors: bool = False) -> None:
    """Remove a folder with its contents; links are not followed. Raises OSError, unless `ignore_errors`, if the folder
    does not exist or something is left."""
    try:
        _remove_folder(os.fspath(path), None)
    except OSError:
        if not ignore_errors:
            raise


def _remove_folder(name: str, dir_fd: int | None) -> None:
    with close_after(open_folder(name, dir_fd=dir_fd)) as top:
        if _is_mounted(top, dir_fd, name):
            raise OSError(errno.EBUSY, "it is a mount point; unmount it", name)
        empty(top)
    os.rmdir(name, dir_fd=dir_fd)


def empty(top: int) -> None:
    """Remove everything that can be removed in an open folder. Then raises the first error, or EBUSY if new entries
    keep appearing. Subfolders of a folder are moved up into `top` before the folder is removed, so that at most two
    levels are open at a time."""
    grant_owner(top)
    prefix, moved = f".{token_hex(8)}-", 0
    stuck: dict[str, OSError] = {}
    entries = _entries(top)
    first, new = {name for name, _ in entries}, 0
    # Each level of nesting takes one pass.
    for _ in range(_MOST_PASSES):
        new += sum(name not in first and not name.startswith(prefix) for name, _ in entries)
        if not entries or new > _MOST_NEW:
            break
        for name, is_folder in entries:
            try:
                if is_folder:
                    moved = _flatten(top, name, prefix, moved)
                else:
                    os.unlink(name, dir_fd=top)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EISDIR):
                    stuck[name] = error
                # Otherwise the entry was replaced meanwhile; the next pass handles it.
        entries = [entry for entry in _entries(top) if entry[0] not in stuck]
    if stuck:
        raise next(iter(stuck.values()))
    if entries:
        raise OSError(errno.EBUSY, "another process keeps filling the folder; end it, then try again")


def _flatten(top: int, name: str, prefix: str, moved: int) -> int:
    """Remove the folder `name` in `top`. Subfolders that are not empty are first moved into `top`, to be removed later;
    each gets the name `prefix` and a number. `moved`: the last number used before; returns the last number used now."""
    with close_after(open_folder(name, dir_fd=top)) as inner:
        if _is_mounted(inner, top):
            raise OSError(errno.EBUSY, "it is a mount point; unmount it", name)
        grant_owner(inner)
        for child, is_folder in _entries(inner):
            if not is_folder:
                os.unlink(child, dir_fd=inner)
                continue
            try:
                os.rmdir(child, dir_fd=inner)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                moved += 1
                _move(inner, child, top, f"{prefix}{moved}")
    os.rmdir(name, dir_fd=top)
    return moved


def _move(source: int, name: str, target: int, new: str) -> None:
    try:
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)
    except PermissionError:
        # A folder without write permission for its owner cannot be moved.
        with close_after(os.open(name, _PLACE, dir_fd=source)) as folder:
            grant_owner(folder)
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=target)


class MovedError(OSError):
    """A folder was moved while its tree was walked, so the walk cannot continue."""


class WalkedFolder(NamedTuple):
    descriptor: int
    """Open until the next folder is requested."""
    names: list[str]
    """Its entries that are not folders."""
    is_plain: bool
    """True if all of these are plain files."""


def walk(top: int, *, is_repaired: bool = False) -> Iterator[WalkedFolder]:
    """Yield each folder of a tree, innermost first, without mount points and folders that cannot be opened; links are
    not followed. `is_repaired`: restore the owner's permissions of unreadable folders. Raises MovedError if a folder is
    moved during the walk."""
    here = os.dup(top)
    try:
        above: list[_Level] = []
        level = _Level(here)
        while True:
            if level.folders:
                name = level.folders.pop()
                with suppress(OSError):
                    inner = open_folder(name, dir_fd=here) if is_repaired else os.open(name, FOLDER, dir_fd=here)
                    try:
                        entered = None if _is_mounted(inner, here) else _Level(inner)
                    except OSError:
                        entered = None
                    if entered is None:
                        os.close(inner)
                        continue
                    os.close(here)
                    here = inner
                    above.append(level)
                    level = entered
                continue
            yield WalkedFolder(here, level.names, level.is_plain)
            if not above:
                return
            level = above.pop()
            outer = os.open("..", FOLDER, dir_fd=here)
            os.close(here)
            here = outer
            if _identity(here) != level.identity:
                raise MovedError(errno.ESTALE, "a folder was moved during the walk")
    finally:
        os.close(here)


class _Level:
    __slots__ = ("folders", "identity", "is_plain", "names")

    def __init__(self, folder: int) -> None:
        self.identity = _identity(folder)
        self.names: list[str] = []
        self.folders: list[str] = []
        self.is_plain = True
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self.folders.append(entry.name)
                else:
                    self.names.append(entry.name)
                    self.is_plain = self.is_plain and entry.is_file(follow_symlinks=False)


def open_plain(path: Path | str, *, follow: bool = False) -> int:
    """Open a plain file, or with `follow` a link to one. Raises OSError for others: opening a device has effects."""
    with close_after(os.open(path, _NAME if follow else _NAME | os.O_NOFOLLOW)) as place:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        return os.open(_through(place), _FILE)


def open_inside(root: Path, name: str, *, follow: bool = False) -> int:
    """Open a plain file in the folder `root`. Raises OSError if a link leads out of `root`, or, without `follow`, if
    the file itself is a link."""
    file = open_plain(root / name, follow=follow)
    try:
        # The opened file is checked, because its name may have been replaced.
        if not Path(os.readlink(_through(file))).is_relative_to(os.path.realpath(root)):
            raise OSError(errno.EXDEV, "a link leads out of the folder", name)
    except BaseException:
        os.close(file)
        raise
    return file


def replace_file(folder: int, name: str, data: bytes, *, mode: int = 0o666) -> None:
    """Replace a file or link in an open folder by a new file, atomically. `mode`: its permissions."""
    aside = f".{token_hex(8)}.new"
    try:
        with open(os.open(aside, _NEW_FILE, mode, dir_fd=folder), "wb") as file:
            file.write(data)
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise


def mounts_below(folder: str, mounts: str) -> list[str]:
    """Return the mount points below a folder from the text of /proc/self/mountinfo. Pure."""
    return [point for point in read_mounts(mounts) if point.startswith(folder.rstrip("/") + "/")]


def read_mounts(mounts: str) -> dict[str, tuple[str, str]]:
    """Parse the text of /proc/PID/mountinfo: mount points with device and mounted folder. Pure."""
    lines = (line.split(" ") for line in mounts.splitlines())
    return {_unescape(words[4]): (words[2], _unescape(words[3])) for words in lines if len(words) > 4}


def _unescape(path: str) -> str:
    return os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), os.fsencode(path)))


def _parts(relative: str) -> list[str]:
    parts = [part for part in relative.split("/") if part and part != "."]
    if ".." in parts or relative.startswith("/"):
        raise OSError(errno.EINVAL, "the path leaves its folder", relative)
    return parts


def _entries(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _is_mounted(folder: int, above: int | None, name: str = "") -> bool:
    """True if the folder is a mount point. `above`: its open parent; None: the parent of the path `name`. Unless this
    process is root, False for a folder on the file system of its parent, because only root can bind-mount."""
    if above is None:
        with close_after(os.open(os.path.dirname(name.rstrip("/")) or ".", _PLACE & ~os.O_NOFOLLOW)) as parent:
            return _is_mounted(folder, parent)
    is_same = os.fstat(folder).st_dev == os.fstat(above).st_dev
    if is_same and os.geteuid() != 0:
        return False
    inner, outer = _mount_number(folder), _mount_number(above)
    return inner != outer if inner and outer else not is_same


def _mount_number(folder: int) -> bytes:
    try:
        with open(f"/proc/self/fdinfo/{folder}", "rb") as file:
            return next((line for line in file if line.startswith(b"mnt_id:")), b"")
    except OSError:
        return b""


def _through(descriptor: int) -> str:
    """Return a path in /proc that refers to the open file itself, so it is still valid if the file is renamed."""
    return f"/proc/self/fd/{descriptor}"
