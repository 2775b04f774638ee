"""Creates the job's repository from one on the same disk without copying objects; a fetch would start seven processes.
If the source repository allows it (it has the file `lent_repository.LENDS`), the new repository refers to its objects
(git alternates). Invariant: the result is what a fetch would have made: refs, tags of the history, FETCH_HEAD, and the
shallow boundary. If a request is not supported here, `borrow` returns False, and the step `checkout` fetches."""

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
    """Create a repository at `inside`, which must not exist, that uses the objects of the local repository `url` in
    place. Returns False, without creating anything, if a fetch (of `refspecs` and `depth`) is needed instead."""
    place = urlsplit(url)
    source = Path(unquote(place.path))
    if place.scheme != "file" or not (source / LENDS).exists() or (source / "shallow").exists():
        return False
    refs = _read_refs(source)
    fetched = _match_refspecs(refs, refspecs)
    # A fetch also brings the tags of the commits that it gets. Without a depth these are not computed here.
    if fetched is None or (not depth and not _ALL_TAGS.issubset(refspecs)):
        return False
    own_refs = {name: refs[origin] for origin, name in fetched}
    other_tags = {name: sha for name, sha in refs.items() if name.startswith(_TAGS) and name not in own_refs}
    tags: dict[str, str] = {}
    ends: set[str] = set()
    if depth:
        with git.open_batch("--git-dir", str(source), "cat-file", "--batch") as reader:
            history = _walk_history(reader, set(own_refs.values()), depth)
            if history is None:
                return False
            commits, ends = history
            for name, sha in other_tags.items():
                commit = _read_commit(reader, f"{sha}^{{commit}}")
                if commit is not None and commit[0] in commits:
                    tags[name] = sha
    _make_repository(inside, source)
    if ends:
        _write(inside / "shallow", sorted(ends))
    _write(inside / "packed-refs", [f"{sha} {name}" for name, sha in (own_refs | tags).items()])
    address = url.rstrip("/").removesuffix(".git")
    heads = [f"{refs[origin]}\t\t{_describe_ref(origin)} of {address}" for origin, _ in fetched]
    _write(
        inside / "FETCH_HEAD",
        heads + [f"{sha}\tnot-for-merge\t{_describe_ref(tag)} of {address}" for tag, sha in tags.items()],
    )
    return True


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes(os.fsencode("".join(f"{line}\n" for line in lines)))


def _read_refs(source: Path) -> dict[str, str]:
    """Read the object id of each ref from the files of the repository `source`, which is faster than a git process."""
    refs: dict[bytes, bytes] = {}
    root = os.fsencode(source)
    for folder, _, names in os.walk(os.path.join(root, b"refs")):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(FileNotFoundError), open(path, "rb") as file:
                match = _REF.fullmatch(file.read(66))
                if match and not name.endswith(b".lock"):
                    refs[os.path.relpath(path, root)] = match[1]
    # Read last: a ref that git packs meanwhile is in one of the two places.
    with suppress(FileNotFoundError):
        for line in (source / "packed-refs").read_bytes().splitlines():
            sha, _, name = line.partition(b" ")
            # Other lines are comments, and the commits of annotated tags.
            if not line.startswith((b"#", b"^")):
                refs.setdefault(name, sha)
    return {os.fsdecode(name): refs[name].decode() for name in sorted(refs)}


def _match_refspecs(refs: Iterable[str], refspecs: list[str]) -> list[tuple[str, str]] | None:
    """Return the refs that match the refspecs, each with the local name that the refspec gives it. None if a refspec
    names a ref that does not exist, or has a form that needs a real fetch."""
    matches: list[tuple[str, str]] = []
    for spec in refspecs:
        origin, _, name = spec.removeprefix("+").partition(":")
        if not origin.startswith("refs/") or not name.startswith("refs/"):
            return None
        if "*" in spec:
            (head, tail), (front, back) = origin.split("*"), name.split("*")
            matching = [
                ref for ref in refs if ref.startswith(head) and ref.endswith(tail) and len(ref) > len(head + tail)
            ]
            matches += [(ref, f"{front}{ref[len(head) : len(ref) - len(tail)]}{back}") for ref in matching]
        elif origin in refs:
            matches.append((origin, name))
        else:
            return None
    return matches


def _make_repository(inside: Path, source: Path) -> None:
    """Create a repository at `inside` as `git init` does, with the objects of `source` as its alternates."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        (inside / name).mkdir(parents=True, exist_ok=True)
    (inside / "HEAD").write_text("ref: refs/heads/none\n")
    (inside / "objects/info/alternates").write_bytes(_format_alternates(source))


def lent_objects(url: str) -> bytes:
    """Return the expected content of `objects/info/alternates` (other object folders that git uses) for a repository
    made by `borrow` from this URL; empty if that is not a local repository that allows the use of its objects."""
    place = urlsplit(url)
    source = Path(unquote(place.path))
    return _format_alternates(source) if place.scheme == "file" and (source / LENDS).exists() else b""


def _format_alternates(source: Path) -> bytes:
    return os.fsencode(source.resolve() / "objects") + b"\n"


def _walk_history(reader: Popen[bytes], tips: Iterable[str], depth: int) -> tuple[set[str], set[str]] | None:
    """Return the commits within `depth` generations of the tips, and the shallow boundary: the commits of the last
    generation. None if a commit is missing. `reader`: a process `git cat-file --batch`."""
    seen: set[str] = set()
    ends: set[str] = set()
    layer = {f"{tip}^{{commit}}" for tip in tips}
    for steps in range(depth):
        parents: set[str] = set()
        for name in layer:
            entry = _read_commit(reader, name)
            if entry is None:
                return None
            commit, its_parents = entry
            if commit not in seen:
                seen.add(commit)
                parents.update(its_parents)
                if steps == depth - 1:
                    ends.add(commit)
        layer = parents - seen
    return seen, ends


def _read_commit(reader: Popen[bytes], name: str) -> tuple[str, list[str]] | None:
    """Return the id and the parents of a commit; None if it does not exist. `reader`: a process `git cat-file --batch`.
    `name`: a revision that is a commit, such as `TAG^{commit}`."""
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


def _describe_ref(ref: str) -> str:
    """Return a ref as git writes it to FETCH_HEAD: `branch 'main'` for `refs/heads/main`."""
    for folder, kind in (("refs/heads/", "branch"), (_TAGS, "tag"), ("refs/remotes/", "remote-tracking branch")):
        if ref.startswith(folder):
            return f"{kind} '{ref.removeprefix(folder)}'"
    return f"'{ref}'"
