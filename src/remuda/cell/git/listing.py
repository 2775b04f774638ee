"""What a repository holds, as lists: the entries of a folder, and tags. For people who look; jobs use `git_reading`.

Nothing is decided here. Called by the edge, with the repositories of the cell.
"""

import msgspec

from remuda.cell.git.repositories import LIST_LIMIT_BYTES, GitError, GitRepos


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder holds."""

    mode: str
    type: str
    """blob, tree, or commit for a submodule."""
    sha: str
    path: str


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag and where it leads."""

    name: str
    target: str
    """The commit, or the tag's own object if it has a message."""
    sha: str
    message: str


async def listing(
    repos: GitRepos,
    repo: str,
    sha: str,
    path: str,
    *,
    is_deep: bool,
    is_folder: bool = True,
    limit_bytes: int = LIST_LIMIT_BYTES,
) -> list[Listed]:
    """What is in a folder of a commit, and in those inside of it if wanted; TooLargeError when that is too much.

    With `is_folder` off, what stands at the path itself.
    """
    deep = ("-r", "-t") if is_deep else ()
    below = [f"{path}/" if is_folder else path] if path else []
    command = ("--literal-pathspecs", "ls-tree", "-z", "--full-tree", *deep, sha, "--", *below)
    code, out = await repos.output(*command, repo=repo, what="the list of files", limit=limit_bytes)
    if code != 0:
        raise GitError(f"git ls-tree: {sha} cannot be read")
    found = []
    for line in out.split(b"\0")[:-1]:
        head, _, name = line.partition(b"\t")
        mode, kind, sha = head.decode().split(" ")
        found.append(Listed(mode=mode, type=kind, sha=sha, path=name.decode(errors="replace")))
    return [one for one in found if one.path != path or not is_folder]


async def tags(repos: GitRepos, repo: str) -> list[Tag]:
    """All tags that lead to commits, by their names."""
    fields = "%(refname:strip=2)%00%(objecttype)%00%(objectname)%00%(*objectname)%00%(contents)%00"
    command = ("for-each-ref", f"--format={fields}", "refs/tags")
    code, out = await repos.output(*command, repo=repo, what="the list of tags", limit=LIST_LIMIT_BYTES)
    if code != 0:
        raise GitError("git for-each-ref: the tags cannot be read")
    parts = out.decode(errors="replace").split("\0")
    found = []
    for at in range(0, len(parts) - 5, 5):
        name, kind, target, inner, message = parts[at].removeprefix("\n"), *parts[at + 1 : at + 5]
        is_plain = kind == "commit"
        sha = target if is_plain else await repos.commit_of(repo, inner) if inner else None
        if sha is not None:
            found.append(Tag(name=name, target=target, sha=sha, message="" if is_plain else message.strip()))
    return found
