"""From what people call a ref to the ref itself, its commit and its pipelines.

Decided here: a bare name is a branch before it is a tag (anybody who may push can make a tag, but not move a protected
branch, and must not take over what others get by its name), of whole names only branches, tags and the heads of merge
requests can have pipelines, and the default branch is the one that the repository shows its clients. Called by whoever
makes a `PipelineRequest` from a name: the HTTP edge, the schedules, the trigger jobs; and by whoever looks for the
newest pipeline or job of a name.
"""

from typing import Protocol

from remuda.cell.core.pipelines.creation import merge_request_iid
from remuda.cell.git.commits import is_branch_name
from remuda.cell.values import Project
from remuda.model.job import ProjectId

_HEADS, _TAGS = "refs/heads/", "refs/tags/"
_FOLDERS = (_HEADS, _TAGS)


class Commits(Protocol):
    """Whoever knows the repositories."""

    async def commit_of(self, repo: str, ref: str) -> str | None:
        """The commit a full ref leads to."""
        ...


class Heads(Commits, Protocol):
    """Whoever knows their default branches too."""

    def head(self, repo: str) -> str | None:
        """The default branch as clients see it."""
        ...


def default_branch(repos: Heads, project: Project) -> str:
    """The branch that is meant where none is named. The project's own word for it counts before the first push."""
    return repos.head(project.repo_path) or project.default_branch


class SeenRefs(Protocol):
    """Whoever knows the refs that the cell has acted on."""

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        """Whether the cell has acted on a full ref that is there."""
        ...


def tag_with_name_of(branch: str) -> str:
    """The tag with the name of a branch, both as full refs."""
    return _TAGS + branch.removeprefix(_HEADS)


async def split_name(refs: SeenRefs, project_id: ProjectId, name: str) -> tuple[str, bool | None]:
    """What the pipelines of a name have as their ref, and whether they are a tag's; None where either will do."""
    if name.startswith(_FOLDERS):
        return name.removeprefix(_HEADS).removeprefix(_TAGS), name.startswith(_TAGS)
    return name, False if await refs.is_ref_seen(project_id, _HEADS + name) else None


def merge_request_ref(iid: int) -> str:
    return f"refs/merge-requests/{iid}/head"


def candidates(name: str) -> tuple[str, ...]:
    """The whole names that a name may stand for, the first one that exists counts."""
    if merge_request_iid(name) is not None:
        return (name,)
    for folder in _FOLDERS:
        if name.startswith(folder):
            return (name,) if is_branch_name(name.removeprefix(folder)) else ()
    return tuple(folder + name for folder in _FOLDERS) if is_branch_name(name) else ()


async def find_ref(repos: Commits, project: Project, name: str) -> tuple[str, str] | None:
    """The whole name and the commit; None when there is no such ref."""
    for ref in candidates(name):
        sha = await repos.commit_of(project.repo_path, ref)
        if sha is not None:
            return ref, sha
    return None


async def find_ref_or_default(repos: Heads, project: Project, name: str) -> tuple[str, str] | None:
    """The same; of the default branch where the name is empty."""
    return await find_ref(repos, project, name or default_branch(repos, project))
