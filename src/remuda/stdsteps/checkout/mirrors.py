"""Copies of repositories that all checkouts of a runner fetch from, so that history crosses the network once.

A mirror is a bare repository in the runner's cache folder, one for each address. A checkout first brings what it wants
from the server into the mirror, with the job's own credentials, so that nobody gets from a mirror what the server would
refuse him; then it fetches from the mirror instead of the server. What it gets are copies: a working directory depends
on no mirror, and a mirror may be removed at any time.

Invariant: who changes a mirror holds its lock alone, who reads it shares it. A mirror is not trusted, for jobs may run
as the user who keeps it: its settings are written anew each time, and what git fetches from it is checked by its own
hashes. Whatever is wrong with a mirror, the checkout falls back to the server. `checkout` is the caller.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from remuda.lib.safe_paths import make_below
from remuda.stdsteps.checkout.git import Git, is_damaged, reason
from remuda.stdsteps.checkout.workdir import is_plain, remove, write
from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.log import say
from remuda.stdsteps.common.sizes import in_words

LOCK, SIZE, REPOSITORY = ".lock", ".size", ".git"
LOOSE_OBJECTS = 2000
"""From so many on they are packed."""
_SHA = re.compile(r"[0-9a-f]{40,64}")
_CONFIG = (
    "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tuseReplaceRefs = false\n"
    "[uploadpack]\n\tallowAnySHA1InWant = true\n"
)
_BENDING = ("config", "hooks", "info", "objects/info/alternates", "commondir", "worktrees", "modules")
_LOCKS = ("shallow.lock", "packed-refs.lock", "HEAD.lock", "config.lock", "gc.pid")


@contextmanager
def mirrored(git: Git, folder: Path, url: str, refspecs: Sequence[str], *, limit_bytes: int) -> Iterator[str | None]:
    """An address on this machine that has what the server has; None where there is none to be had."""
    if urlsplit(url).scheme == "file":
        yield None
        return
    place = folder / _name(url)
    try:
        # A job may have put a link there.
        os.close(make_below(folder.parent, folder.name, mode=0o700, may_be_mounted=True))
        lock = os.open(_beside(place, LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        say(f"WARNING: {folder} cannot be used for a mirror of the repository: {error.strerror}")
        yield None
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_there = _refreshed(git, place, url, refspecs, limit_bytes=limit_bytes)
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield _beside(place, REPOSITORY).as_uri() if is_there else None
    finally:
        os.close(lock)
    shrink(folder, limit_bytes)


def forget(folder: Path, url: str) -> None:
    """There is something wrong with a mirror; the next checkout makes a new one. Whoever reads it goes on doing so."""
    place = folder / _name(url)
    with suppress(OSError):
        _beside(place, REPOSITORY).rename(_beside(place, f".{os.getpid()}.old"))
        remove(_beside(place, f".{os.getpid()}.old"))


def shrink(folder: Path, limit_bytes: int) -> None:
    """Remove the mirrors that were not used for longest until the rest has room; none that is in use."""
    found = []
    for path in folder.glob(f"*{SIZE}"):
        with suppress(OSError, ValueError):
            place = path.with_suffix("")
            if _beside(place, REPOSITORY).exists():
                found.append((path.stat().st_mtime, int(path.read_text()), place))
    total = sum(size for _, size, _ in found)
    for _, size, place in sorted(found):
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


def _refreshed(git: Git, place: Path, url: str, refspecs: Sequence[str], *, limit_bytes: int) -> bool:
    """Bring the mirror to what the server has; False where there is none, and the checkout asks the server itself."""
    inside = _beside(place, REPOSITORY)
    noted = _beside(place, SIZE)
    with suppress(OSError, ValueError):
        if int(noted.read_text()) > limit_bytes:
            return False
    try:
        _prepare(git, inside)
        own = ("--git-dir", str(inside))
        wanted = [_kept(spec) for spec in refspecs]
        # Once: where the server is away, the checkout waits for it without a mirror.
        code, text = git.attempt(*own, "fetch", "--force", "--no-tags", "--quiet", url, *wanted, quiet=True)
        if code:
            say(f"WARNING: the mirror of the repository cannot be brought up to date: {reason(text)}")
            if is_damaged(text):
                remove(inside)
            return False
        git.attempt(*own, "-c", f"gc.auto={LOOSE_OBJECTS}", "-c", "gc.autoDetach=false", "gc", "--auto", "--quiet")
        size = sum(entry.stat().st_size for entry in inside.rglob("*") if entry.is_file())
        write(noted.parent, noted.name, str(size).encode())
        if size > limit_bytes:
            say(f"WARNING: the repository has {in_words(size)}, mirrors have {in_words(limit_bytes)}: it gets none")
            remove(inside)
            return False
    except (StepError, OSError) as error:
        say(f"WARNING: the mirror of the repository is made anew next time: {error}")
        with suppress(OSError):
            remove(inside)
        return False
    return True


def _prepare(git: Git, inside: Path) -> None:
    if not is_plain(inside):
        remove(inside)
    for name in (*_BENDING, *_LOCKS):
        remove(inside / name)
    if not (inside / "HEAD").is_file() or not (inside / "objects").is_dir():
        remove(inside)
        git.run("init", "--quiet", "--bare", "--template=", str(inside))
    write(inside, "config", _CONFIG.encode())


def _kept(refspec: str) -> str:
    """Under which name the mirror keeps what a checkout wants: the server's own, so that it can be asked like that."""
    origin = refspec.removeprefix("+").partition(":")[0]
    return f"+{origin}:refs/commits/{origin}" if _SHA.fullmatch(origin) else f"+{origin}:{origin}"


def _name(url: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", urlsplit(url).path.removesuffix(".git"))[-60:].strip("-")
    return f"{words}-{hashlib.sha256(url.encode()).hexdigest()[:32]}"


def _beside(place: Path, suffix: str) -> Path:
    return place.with_name(place.name + suffix)
