"""Resolves the name of a branch, tag or merge request that a user gives: to its full ref, its commit and its pipelines.

If a branch and a tag have the same name, the name means the branch: anybody who may push can create a tag, and must not
take over the name of a protected branch. Only branches, tags and `refs/merge-requests/<number>/head` can have
pipelines."""

from typing import Protocol

from remuda.cell.core.pipelines.creation import merge_request_iid
from remuda.cell.git.commits import is_branch_name
from remuda.cell.values import Project
from remuda.model.job import ProjectId

_HEADS, _TAGS = "refs/heads/", "refs/tags/"
_FOLDERS = (_HEADS, _TAGS)


class Commits(Protocol):
    """The interface for looking up the commit of a ref; implemented by `Repositories`."""

    async def commit_of(self, repo: str, ref: str) -> str | None:
        """Return the hash of the commit that a full ref points to; None if the ref does not exist."""
        ...


class Heads(Commits, Protocol):
    """The interface for looking up commits and default branches; implemented by `Repositories`."""

    def head(self, repo: str) -> str | None:
        """Return the name of the branch in HEAD, for git clients the default branch; None if HEAD names no branch."""
        ...


def default_branch(repos: Heads, project: Project) -> str:
    """Return the repository's default branch; if it has none, the one in the project's settings."""
    return repos.head(project.repo_path) or project.default_branch


class SeenRefs(Protocol):
    """The interface for asking whether the cell has processed a push of a ref; implemented by the store."""

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        """True if the cell has processed a push of the ref, and has not seen its deletion since."""
        ...


def tag_with_name_of(branch: str) -> str:
    """Return the full ref of the tag with the same name as `branch`, which is a full ref, too."""
    return _TAGS + branch.removeprefix(_HEADS)


async def split_name(refs: SeenRefs, project_id: ProjectId, name: str) -> tuple[str, bool | None]:
    """Return `Pipeline.ref` and `Pipeline.tag` to find the pipelines of a full ref or a bare name such as `main`. `tag`
    is None (tags and branches) for a bare name of which the cell knows no branch."""
    if name.startswith(_FOLDERS):
        return name.removeprefix(_HEADS).removeprefix(_TAGS), name.startswith(_TAGS)
    return name, False if await refs.is_ref_seen(project_id, _HEADS + name) else None


def merge_request_ref(iid: int) -> str:
    return f"refs/merge-requests/{iid}/head"


def candidates(name: str) -> tuple[str, ...]:
    """Return the full refs that a name can mean; the first that exists is used. Empty if the name is invalid."""
    if merge_request_iid(name) is not None:
        return (name,)
    for folder in _FOLDERS:
        if name.startswith(folder):
            return (name,) if is_branch_name(name.removeprefix(folder)) else ()
    return tuple(folder + name for folder in _FOLDERS) if is_branch_name(name) else ()


async def find_ref(repos: Commits, project: Project, name: str) -> tuple[str, str] | None:
    """Return full ref and commit hash of a user's name for a ref, such as `main`; None if there is no such ref."""
    for ref in candidates(name):
        sha = await repos.commit_of(project.repo_path, ref)
        if sha is not None:
            return ref, sha
    return None


async def find_ref_or_default(repos: Heads, project: Project, name: str) -> tuple[str, str] | None:
    """Return full ref and commit hash of a name (empty: of the default branch); None if there is no such ref."""
    return await find_ref(repos, project, name or default_branch(repos, project))
