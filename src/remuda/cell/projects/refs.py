"""Resolves the name that a person gives to a ref: its full name, its commit and its pipelines.

A bare name means a branch before a tag: anybody who may push can create a tag, and must not take over the name of a
protected branch. Only branches, tags and heads of merge requests can have pipelines. The default branch is the one that
the repository shows its clients. Called for every `PipelineRequest` that is made from a name (endpoints, schedules,
trigger jobs) and to find the newest pipeline or job of a name.
"""

from typing import Protocol

from remuda.cell.core.pipelines.creation import merge_request_iid
from remuda.cell.git.commits import is_branch_name
from remuda.cell.values import Project
from remuda.model.job import ProjectId

_HEADS, _TAGS = "refs/heads/", "refs/tags/"
_FOLDERS = (_HEADS, _TAGS)


class Commits(Protocol):
    """Looks up commits in repositories."""

    async def commit_of(self, repo: str, ref: str) -> str | None:
        """The commit that a full ref leads to."""
        ...


class Heads(Commits, Protocol):
    """Looks up commits and default branches."""

    def head(self, repo: str) -> str | None:
        """The default branch that clients see."""
        ...


def default_branch(repos: Heads, project: Project) -> str:
    """The repository's default branch; the project's setting before the first push."""
    return repos.head(project.repo_path) or project.default_branch


class SeenRefs(Protocol):
    """Looks up the refs that the cell has acted on."""

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        """True if the ref exists and the cell has acted on it."""
        ...


def tag_with_name_of(branch: str) -> str:
    """The tag with the name of a branch, both as full refs."""
    return _TAGS + branch.removeprefix(_HEADS)


async def split_name(refs: SeenRefs, project_id: ProjectId, name: str) -> tuple[str, bool | None]:
    """The `ref` of pipelines of this name, and whether they are a tag's; None: a branch's or a tag's."""
    if name.startswith(_FOLDERS):
        return name.removeprefix(_HEADS).removeprefix(_TAGS), name.startswith(_TAGS)
    return name, False if await refs.is_ref_seen(project_id, _HEADS + name) else None


def merge_request_ref(iid: int) -> str:
    return f"refs/merge-requests/{iid}/head"


def candidates(name: str) -> tuple[str, ...]:
    """The full names that a name may mean; the first one that exists counts."""
    if merge_request_iid(name) is not None:
        return (name,)
    for folder in _FOLDERS:
        if name.startswith(folder):
            return (name,) if is_branch_name(name.removeprefix(folder)) else ()
    return tuple(folder + name for folder in _FOLDERS) if is_branch_name(name) else ()


async def find_ref(repos: Commits, project: Project, name: str) -> tuple[str, str] | None:
    """The full name and the commit of a ref; None when there is no such ref."""
    for ref in candidates(name):
        sha = await repos.commit_of(project.repo_path, ref)
        if sha is not None:
            return ref, sha
    return None


async def find_ref_or_default(repos: Heads, project: Project, name: str) -> tuple[str, str] | None:
    """`find_ref`, with the default branch for an empty name."""
    return await find_ref(repos, project, name or default_branch(repos, project))
