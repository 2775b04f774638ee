"""Takes from a repository on this machine, without copying it, what a fetch from there would bring.

A fetch starts seven processes to copy objects that are a few folders away. Where the repository lends them, which its
keeper says with a mark, it is enough to write down where they are; this reads the refs and the ends of the history.

Invariant: what a job finds is what the fetch would have left: the same refs, tags of the history included, the same
FETCH_HEAD, the same cut through the history. What this does not know is left to the fetch. `checkout` is the caller.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from urllib.parse import unquote, urlsplit

from remuda.lib.lent_repository import LENDS
from remuda.stdsteps.checkout.git import Git

_REF = re.compile(rb"([0-9a-f]{40}|[0-9a-f]{64})\n")
_TAGS = "refs/tags/"
_ALL_TAGS = {"+refs/tags/*:refs/tags/*"}


def borrow(git: Git, inside: Path, url: str, refspecs: list[str], depth: int) -> bool:
    """Make a repository at `inside`, where there is nothing yet; False: nothing is made, a fetch is needed."""
    place = urlsplit(url)
    source = Path(unquote(place.path))
    if place.scheme != "file" or not (source / LENDS).exists() or (source / "shallow").exists():
        return False
    refs = _refs(source)
    fetched = _fetched(refs, refspecs)
    # Git brings the tags of what it fetches, wanted or not; without a limit that is not known here.
    if fetched is None or (not depth and not _ALL_TAGS.issubset(refspecs)):
        return False
    kept = {name: refs[origin] for origin, name in fetched}
    others = {name: own for name, own in refs.items() if name.startswith(_TAGS) and name not in kept}
    tags: dict[str, str] = {}
    ends: set[str] = set()
    if depth:
        with git.conversation("--git-dir", str(source), "cat-file", "--batch") as reader:
            reached = _history(reader, set(kept.values()), depth)
            if reached is None:
                return False
            commits, ends = reached
            for name, own in others.items():
                found = _commit(reader, f"{own}^{{commit}}")
                if found is not None and found[0] in commits:
                    tags[name] = own
    _lay_out(inside, source)
    if ends:
        _write(inside / "shallow", sorted(ends))
    _write(inside / "packed-refs", [f"{sha} {name}" for name, sha in (kept | tags).items()])
    address = url.rstrip("/").removesuffix(".git")
    heads = [f"{refs[origin]}\t\t{_spoken(origin)} of {address}" for origin, _ in fetched]
    _write(
        inside / "FETCH_HEAD",
        heads + [f"{sha}\tnot-for-merge\t{_spoken(tag)} of {address}" for tag, sha in tags.items()],
    )
    return True


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes(os.fsencode("".join(f"{line}\n" for line in lines)))


def _refs(source: Path) -> dict[str, str]:
    """What the refs lead to, as far as the files of the repository tell that; another process would cost more."""
    found: dict[bytes, bytes] = {}
    root = os.fsencode(source)
    for folder, _, names in os.walk(os.path.join(root, b"refs")):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(FileNotFoundError), open(path, "rb") as file:
                match = _REF.fullmatch(file.read(66))
                if match and not name.endswith(b".lock"):
                    found[os.path.relpath(path, root)] = match[1]
    # Read afterwards: a ref that git packs meanwhile is in one of the two.
    with suppress(FileNotFoundError):
        for line in (source / "packed-refs").read_bytes().splitlines():
            sha, _, name = line.partition(b" ")
            # The others are a remark, and what a tag leads to.
            if not line.startswith((b"#", b"^")):
                found.setdefault(name, sha)
    return {os.fsdecode(name): found[name].decode() for name in sorted(found)}


def _fetched(refs: Iterable[str], refspecs: list[str]) -> list[tuple[str, str]] | None:
    """The refs that are asked for, each with its name here; None where a fetch has more to say."""
    found: list[tuple[str, str]] = []
    for spec in refspecs:
        origin, _, name = spec.removeprefix("+").partition(":")
        if not origin.startswith("refs/") or not name.startswith("refs/"):
            return None
        if "*" in spec:
            (head, tail), (front, back) = origin.split("*"), name.split("*")
            fits = [ref for ref in refs if ref.startswith(head) and ref.endswith(tail) and len(ref) > len(head + tail)]
            found += [(ref, f"{front}{ref[len(head) : len(ref) - len(tail)]}{back}") for ref in fits]
        elif origin in refs:
            found.append((origin, name))
        else:
            return None
    return found


def _lay_out(inside: Path, source: Path) -> None:
    """What `git init` makes, and where the objects are."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (inside / name).mkdir(parents=True, exist_ok=True)
    (inside / "HEAD").write_text("ref: refs/heads/none\n")
    (inside / "objects/info/alternates").write_bytes(_objects(source))


def lent_objects(url: str) -> bytes:
    """What a repository's list of alternates says that borrows from this address; empty where nothing is lent."""
    place = urlsplit(url)
    source = Path(unquote(place.path))
    return _objects(source) if place.scheme == "file" and (source / LENDS).exists() else b""


def _objects(source: Path) -> bytes:
    return os.fsencode(source.resolve() / "objects") + b"\n"


def _history(reader: Popen[bytes], tips: Iterable[str], depth: int) -> tuple[set[str], set[str]] | None:
    """The commits that are less than `depth` steps away from the tips, and the last of them; None: not all are."""
    seen: set[str] = set()
    ends: set[str] = set()
    layer = {f"{tip}^{{commit}}" for tip in tips}
    for steps in range(depth):
        parents: set[str] = set()
        for name in layer:
            found = _commit(reader, name)
            if found is None:
                return None
            commit, its_parents = found
            if commit not in seen:
                seen.add(commit)
                parents.update(its_parents)
                if steps == depth - 1:
                    ends.add(commit)
        layer = parents - seen
    return seen, ends


def _commit(reader: Popen[bytes], name: str) -> tuple[str, list[str]] | None:
    """A commit and its parents."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    reader.stdin.write(f"{name}\n".encode())
    reader.stdin.flush()
    words = reader.stdout.readline().split()
    if len(words) != 3:
        return None
    content = reader.stdout.read(int(words[2]) + 1)
    lines = content.partition(b"\n\n")[0].decode(errors="replace").splitlines()
    return words[0].decode(), [line[7:] for line in lines if line.startswith("parent ")]


def _spoken(ref: str) -> str:
    """How git names a ref in FETCH_HEAD."""
    for folder, kind in (("refs/heads/", "branch"), (_TAGS, "tag"), ("refs/remotes/", "remote-tracking branch")):
        if ref.startswith(folder):
            return f"{kind} '{ref.removeprefix(folder)}'"
    return f"'{ref}'"
