"""A project's repository in GitLab's form: create and show commits, show branches; and Remuda's call to set refs.
`remuda.cell.git.commits` applies file actions; `remuda.cell.projects.projects` starts pipelines for new commits."""

import re
from typing import ClassVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from remuda.cell.core.access.protected_refs import Pusher, can_push, can_run, is_protected
from remuda.cell.errors import InvalidError
from remuda.cell.git.commits import is_branch_name
from remuda.cell.git.port import GitError, LogFilter
from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.admission import Caller, check_push
from remuda.cell.http.edge.bodies import flag_in_query, time_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter, not_found
from remuda.cell.http.edge.large_bodies import large_parameters
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.edge.unsupported_fields import Unsupported
from remuda.cell.http.gitlab.views import CommitShape, PipelineSummaryShape, commit_view, pipeline_summary
from remuda.cell.projects.projects import CommitRequest
from remuda.cell.values import Page, PipelineFilter, Project
from remuda.cell.values.people import Level

_REF = re.compile(r"refs/(?:heads|tags)/(.+)|refs/compared/[0-9a-f]{40}|refs/merge-requests/[1-9][0-9]*/head")
_SHA = re.compile(r"[0-9a-f]{40}")


_ROOT = "/api/v4/projects/{id}/repository"
routes = Routes()


class NewRefs(msgspec.Struct, kw_only=True):
    refs: dict[str, str]


class ChangesShape(Shape, kw_only=True):
    """How many lines a commit changes."""

    additions: int
    deletions: int
    total: int


class CountedCommitShape(CommitShape, kw_only=True):
    stats: ChangesShape | UnsetType = UNSET


class CommitDetailShape(CountedCommitShape, kw_only=True):
    """A commit, with the newest pipeline that ran for it; both fields are null if there is none."""

    project_id: int
    status: str | None
    last_pipeline: PipelineSummaryShape | None


class BranchShape(Shape, kw_only=True):
    name: str
    commit: CommitShape
    merged: bool = False
    protected: bool
    default: bool
    developers_can_push: bool
    developers_can_merge: bool
    can_push: bool = True
    web_url: str


class NewCommit(CommitRequest, frozen=True, kw_only=True):
    unsupported: ClassVar[Unsupported] = Unsupported(refused={"start_project": ()})


@routes.post(f"{_ROOT}/commits", in_project(Level.DEVELOPER), takes=NewCommit)
async def commit(edge: Edge, request: Request, caller: Caller, project: Project) -> CommitShape:
    """Create a commit from a list of file actions, such as create, update or delete."""
    async with large_parameters(edge, request, NewCommit, limit_bytes=edge.settings.commit_limit_bytes) as params:
        if not params.commit_message.strip():
            raise bad_parameter("commit_message is empty")
        await check_push(edge, caller, project, [f"refs/heads/{params.branch}"])
        sha = await edge.projects.commit(project, params, caller.user)
    return await _view(edge, project, sha)


@routes.put("/api/remuda/v1/projects/{id}/refs", in_project(Level.DEVELOPER).with_scopes("write_repository"))
async def put_refs(edge: Edge, project: Project, params: NewRefs, caller: Caller) -> None:
    """Create, move or delete refs as a push does, with commits that are already in the repository."""
    for ref, sha in params.refs.items():
        match = _REF.fullmatch(ref)
        if not match or (match[1] and not is_branch_name(match[1])) or not _SHA.fullmatch(sha):
            raise bad_parameter(
                f"refs is invalid: {ref!r} cannot be set to {sha!r}; expected a ref such as "
                "refs/heads/main and the full id of a commit"
            )
    await check_push(edge, caller, project, params.refs)
    try:
        await edge.projects.put_refs(project, params.refs, caller.user)
    except (GitError, InvalidError) as error:
        raise bad_parameter(f"refs is invalid: {error}") from None


async def _view(edge: Edge, project: Project, sha: str) -> CommitShape:
    commit = await edge.projects.repos.commit(project.repo_path, sha)
    if commit is None:
        raise not_found("Commit")
    return commit_view(commit, project, edge.settings.url)


async def resolve_commit(edge: Edge, project: Project, name: str) -> str:
    """The id of the commit that a branch, a tag or an abbreviated id names. Raises ApiError 404 if there is none."""
    sha = await edge.projects.repos.resolve(project.repo_path, name)
    if sha is None:
        raise not_found("Commit")
    return sha


@routes.get(
    f"{_ROOT}/commits",
    in_project(Level.REPORTER),
    query={
        "ref_name": str,
        "path": str,
        "author": str,
        "since": str,
        "until": str,
        "all": bool,
        "first_parent": bool,
        "with_stats": bool,
    },
)
async def list_commits(edge: Edge, request: Request, project: Project, page: Page) -> Paged[CountedCommitShape]:
    """List the commits of a ref or, with `all`, of all branches and tags."""
    repos, query = edge.projects.repos, request.query_params
    if await repos.is_empty(project.repo_path):
        return Paged([], 0, page)
    ref = query.get("ref_name") or repos.head(project.repo_path) or project.default_branch
    sha = await resolve_commit(edge, project, ref)
    selection = LogFilter(
        path=query.get("path", "").strip("/"),
        author=query.get("author", ""),
        since=time_in_query(request, "since"),
        until=time_in_query(request, "until"),
        is_first_parent=flag_in_query(request, "first_parent"),
        has_all_refs=flag_in_query(request, "all"),
    )
    for name, text in (("path", selection.path), ("author", selection.author)):
        if "\0" in text:
            raise bad_parameter(f"{name} is invalid")
    skip = (page.number - 1) * page.size
    commits = await repos.log(project.repo_path, sha, skip=skip, count=page.size, selection=selection)
    total = await repos.count(project.repo_path, sha, selection)
    views = [commit_view(commit, project, edge.settings.url) for commit in commits]
    has_stats = flag_in_query(request, "with_stats") and commits
    stats = await _count_changes(edge, project, [commit.sha for commit in commits]) if has_stats else {}
    return Paged(
        [CountedCommitShape(**msgspec.structs.asdict(view), stats=stats.get(view.id, UNSET)) for view in views],
        total,
        page,
    )


async def _count_changes(edge: Edge, project: Project, shas: list[str]) -> dict[str, ChangesShape]:
    changes = await edge.projects.repos.count_changes(project.repo_path, shas)
    return {
        sha: ChangesShape(additions=row.additions, deletions=row.deletions, total=row.additions + row.deletions)
        for sha, row in changes.items()
    }


@routes.get(f"{_ROOT}/commits/{{sha}}", in_project(Level.REPORTER), query={"stats": bool})
async def show_commit(edge: Edge, request: Request, project: Project) -> CommitDetailShape:
    """Show a commit, with its newest pipeline and, unless `stats` is false, how many lines it changes."""
    sha = await resolve_commit(edge, project, text_in_path(request, "sha"))
    view = await _view(edge, project, sha)
    has_stats = request.query_params.get("stats", "").lower() not in ("false", "0")
    stats = await _count_changes(edge, project, [sha]) if has_stats else {}
    pipelines, _ = await edge.store.pipelines.list_pipelines(
        project.id, Page(size=1, counted=False), PipelineFilter(sha=sha)
    )
    newest = pipeline_summary(pipelines[0], project, edge.settings.url) if pipelines else None
    return CommitDetailShape(
        **msgspec.structs.asdict(view),
        stats=stats.get(sha, UNSET),
        project_id=project.id,
        status=newest.status if newest else None,
        last_pipeline=newest,
    )


@routes.get(f"{_ROOT}/branches", in_project(Level.REPORTER), query={"search": str})
async def list_branches(edge: Edge, request: Request, project: Project, page: Page) -> Paged[BranchShape]:
    """List the branches."""
    search = request.query_params.get("search", "")
    refs = await edge.projects.repos.refs(project.repo_path)
    names = [ref.removeprefix("refs/heads/") for ref in refs if ref.startswith("refs/heads/")]
    names = [name for name in names if matches_search(name, search)]
    shown = names[(page.number - 1) * page.size : page.number * page.size]
    views = [await branch_at(edge, project, name, refs[f"refs/heads/{name}"]) for name in shown]
    return Paged(views, len(names), page)


def matches_search(name: str, search: str) -> bool:
    """Return whether the name of a branch or tag matches GitLab's parameter `search`: it contains the text, begins with
    what follows `^`, or ends with what precedes `$`."""
    name, search = name.casefold(), search.casefold()
    if search.startswith("^"):
        return name.startswith(search[1:])
    return name.endswith(search[:-1]) if search.endswith("$") else search in name


@routes.get(f"{_ROOT}/branches/{{branch}}", in_project(Level.REPORTER))
async def show_branch(edge: Edge, request: Request, project: Project) -> BranchShape:
    """Show a branch."""
    name = text_in_path(request, "branch")
    refs = await edge.projects.repos.refs(project.repo_path)
    if f"refs/heads/{name}" not in refs:
        raise not_found("Branch")
    return await branch_at(edge, project, name, refs[f"refs/heads/{name}"])


async def branch_at(edge: Edge, project: Project, name: str, sha: str) -> BranchShape:
    rules, ref, developer = edge.projects.ref_rules(project), f"refs/heads/{name}", Pusher(0, Level.DEVELOPER)
    return BranchShape(
        name=name,
        commit=await _view(edge, project, sha),
        protected=is_protected(rules, ref),
        default=name == edge.projects.repos.head(project.repo_path),
        developers_can_push=can_push(rules, ref, developer),
        developers_can_merge=can_run(rules, ref, developer),
        web_url=f"{edge.settings.url}/{project.path}/-/tree/{quote(name)}",
    )
