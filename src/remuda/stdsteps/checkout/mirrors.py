"""Keeps mirrors: local bare copies of repositories that all checkouts of a runner fetch from, to save network traffic.
A checkout first updates the mirror with the job's own credentials, so that no job gets commits that the server would
refuse. Objects are copied, so a mirror can be removed at any time.

Invariant: updates hold an exclusive lock, reads a shared one. A mirror is not trusted, because jobs can run as its
owner: its configuration is rewritten each time, and git verifies the hashes of objects. If anything fails, the checkout
fetches from the server."""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from remuda.lib.safe_paths import make_below
from remuda.stdsteps.checkout.git import Git, find_reason, is_damaged
from remuda.stdsteps.checkout.workdir import is_plain, remove, write
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.sizes import format_size

LOCK, SIZE, REPOSITORY = ".lock", ".size", ".git"
LOOSE_OBJECTS = 2000
"""Loose objects are packed from this number on."""
_SHA = re.compile(r"[0-9a-f]{40,64}")
_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tuseReplaceRefs = false\n"
    "[uploadpack]\n\tallowAnySHA1InWant = true\n"
)
_UNTRUSTED = ("config", "hooks", "info", "objects/info/alternates", "commondir", "worktrees", "modules")
_LOCKS = ("shallow.lock", "packed-refs.lock", "HEAD.lock", "config.lock", "gc.pid")


@contextmanager
def open_mirror(git: Git, folder: Path, url: str, refspecs: Sequence[str], *, limit_bytes: int) -> Iterator[str | None]:
    """Update the mirror of the repository `url` in `folder`, which contains all mirrors, and yield the mirror's URL,
    with a read lock until the block ends. Yields None if the repository is local or larger than `limit_bytes`, `folder`
    cannot be used, or the update failed. At the end, removes old mirrors until all together fit into `limit_bytes`."""
    if urlsplit(url).scheme == "file":
        yield None
        return
    place = folder / _mirror_name(url)
    try:
        # A job may have put a link there.
        os.close(make_below(folder.parent, folder.name, mode=0o700, may_be_mounted=True))
        lock = os.open(_beside(place, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        say(f"WARNING: cannot keep a mirror of the repository in {folder}: {error.strerror}; fetching from the server")
        yield None
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_usable = _update_mirror(git, place, url, refspecs, limit_bytes=limit_bytes)
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield _beside(place, REPOSITORY).as_uri() if is_usable else None
    finally:
        os.close(lock)
    shrink(folder, limit_bytes)


def forget(folder: Path, url: str) -> None:
    """Delete the damaged mirror of `url`; the next checkout creates it again. Checkouts with open files can finish."""
    place = folder / _mirror_name(url)
    with suppress(OSError):
        _beside(place, REPOSITORY).rename(_beside(place, f".{os.getpid()}.old"))
        remove(_beside(place, f".{os.getpid()}.old"))


def shrink(folder: Path, limit_bytes: int) -> None:
    """Delete the least recently used, unlocked mirrors until all together have at most `limit_bytes`."""
    mirrors = []
    for path in folder.glob(f"*{SIZE}"):
        with suppress(OSError, ValueError):
            place = path.with_suffix("")
            if _beside(place, REPOSITORY).exists():
                mirrors.append((path.stat().st_mtime, int(path.read_text()), place))
    total = sum(size for _, size, _ in mirrors)
    for _, size, place in sorted(mirrors):
        if total <= limit_bytes:
            return
        with suppress(OSError):
            lock = os.open(_beside(place, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(_beside(place, REPOSITORY))
                total -= size
            finally:
                os.close(lock)


def _update_mirror(git: Git, place: Path, url: str, refspecs: Sequence[str], *, limit_bytes: int) -> bool:
    """Fetch from `url` into the mirror `place`; False if the fetch failed or the repository exceeds `limit_bytes`."""
    inside = _beside(place, REPOSITORY)
    size_file = _beside(place, SIZE)
    with suppress(OSError, ValueError):
        if int(size_file.read_text()) > limit_bytes:
            return False
    try:
        _prepare(git, inside)
        own = ("--git-dir", str(inside))
        mirror_refspecs = [_mirror_refspec(spec) for spec in refspecs]
        # Without retries: if the server is unreachable, the checkout's own fetch waits for it.
        code, text = git.attempt(*own, "fetch", "--force", "--no-tags", "--quiet", url, *mirror_refspecs, quiet=True)
        if code:
            say(f"WARNING: cannot update the mirror of the repository: {find_reason(text)}; fetching from the server")
            if is_damaged(text):
                remove(inside)
            return False
        git.attempt(*own, "-c", f"gc.auto={LOOSE_OBJECTS}", "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet")
        size = sum(entry.stat().st_size for entry in inside.rglob("*") if entry.is_file())
        write(size_file.parent, size_file.name, str(size).encode())
        if size > limit_bytes:
            sizes = f"it has {format_size(size)}, and all mirrors may have {format_size(limit_bytes)}"
            say(f"WARNING: the repository is too large for a mirror: {sizes}")
            remove(inside)
            return False
    except (StepError, OSError) as error:
        say(f"WARNING: cannot use the mirror of the repository: {error}; the next checkout creates it again")
        with suppress(OSError):
            remove(inside)
        return False
    return True


def _prepare(git: Git, inside: Path) -> None:
    if not is_plain(inside):
        remove(inside)
    for name in (*_UNTRUSTED, *_LOCKS):
        remove(inside / name)
    if not (inside / "HEAD").is_file() or not (inside / "objects").is_dir():
        remove(inside)
        git.run("init", "--quiet", "--bare", "--template=", str(inside))
    write(inside, "config", _CONFIG.encode())


def _mirror_refspec(refspec: str) -> str:
    """Return the refspec that stores a ref in the mirror under its name on the server, so that checkouts can fetch it
    by the same name; a commit id is stored below `refs/commits/`."""
    origin = refspec.removeprefix("+").partition(":")[0]
    return f"+{origin}:refs/commits/{origin}" if _SHA.fullmatch(origin) else f"+{origin}:{origin}"


def _mirror_name(url: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", urlsplit(url).path.removesuffix(".git"))[-60:].strip("-")
    return f"{words}-{hashlib.sha256(url.encode()).hexdigest()[:32]}"


def _beside(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)
