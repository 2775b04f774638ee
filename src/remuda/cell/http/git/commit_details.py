"""What a commit changed, which branches and tags contain it, and how two commits differ, in GitLab's form."""

from typing import Literal

from starlette.requests import Request

from remuda.cell.http.edge.access import in_project
from remuda.cell.http.edge.bodies import choice_in_query, flag_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import bad_parameter
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.git.repository import resolve_commit
from remuda.cell.http.gitlab.views import CommitShape, commit_view
from remuda.cell.values import Project
from remuda.cell.values.people import Level

_ROOT = "/api/v4/projects/{id}/repository"
_READ = in_project(Level.REPORTER)
_MAX_COMMITS = 1000
routes = Routes()


class DiffShape(Shape, kw_only=True):
    diff: str
    collapsed: bool = False
    too_large: bool
    new_path: str
    old_path: str
    a_mode: str
    b_mode: str
    new_file: bool
    renamed_file: bool
    deleted_file: bool
    generated_file: bool = False


class RefShape(Shape, kw_only=True):
    type: str
    name: str


class SequenceShape(Shape, kw_only=True):
    count: int


class CompareShape(Shape, kw_only=True):
    commit: CommitShape | None
    commits: list[CommitShape]
    diffs: list[DiffShape]
    compare_timeout: bool = False
    compare_same_ref: bool
    web_url: str


@routes.get(f"{_ROOT}/commits/{{sha}}/diff", _READ)
async def show_diff(edge: Edge, request: Request, project: Project) -> list[DiffShape]:
    """List the files that a commit changed, with the changes. A merge is compared with its first parent."""
    repos, repo = edge.projects.repos, project.repo_path
    sha = await resolve_commit(edge, project, text_in_path(request, "sha"))
    commit = await repos.commit(repo, sha)
    parents = commit.parents if commit else ()
    return [DiffShape.of(file) for file in await repos.diff(repo, parents[0] if parents else None, sha)]


@routes.get(f"{_ROOT}/commits/{{sha}}/refs", _READ, query={"type": Literal["all", "branch", "tag"]})
async def list_refs(edge: Edge, request: Request, project: Project) -> list[RefShape]:
    """List the branches and tags that contain a commit."""
    wanted = choice_in_query(request, "type", ("all", "branch", "tag"), "all")
    sha = await resolve_commit(edge, project, text_in_path(request, "sha"))
    refs = []
    for ref in await edge.projects.repos.refs_with(project.repo_path, sha):
        _, folder, name = ref.split("/", 2)
        refs.append(RefShape(type="branch" if folder == "heads" else "tag", name=name))
    return [ref for ref in refs if wanted in ("all", ref.type)]


@routes.get(f"{_ROOT}/commits/{{sha}}/sequence", _READ)
async def show_sequence(edge: Edge, request: Request, project: Project) -> SequenceShape:
    """Show how many commits the history of a commit has, itself included."""
    sha = await resolve_commit(edge, project, text_in_path(request, "sha"))
    return SequenceShape(count=await edge.projects.repos.count(project.repo_path, sha))


@routes.get(f"{_ROOT}/compare", _READ, query={"from": str, "to": str, "straight": bool})
async def compare(edge: Edge, request: Request, project: Project) -> CompareShape:
    """Compare two branches, tags or commits: the commits of `to` that `from` lacks, and the changes.
    Changes are those since the histories fork or, with `straight`, the difference of the two."""
    names = [request.query_params.get(key, "") for key in ("from", "to")]
    if not all(names):
        raise bad_parameter(f"{'from' if not names[0] else 'to'} is missing")
    repos, repo, url = edge.projects.repos, project.repo_path, edge.settings.url
    before, sha = [await resolve_commit(edge, project, name) for name in names]
    commits = await repos.log_between(repo, before, sha, count=_MAX_COMMITS)
    views = [commit_view(commit, project, url) for commit in reversed(commits)]
    diffs = await repos.diff(repo, before, sha, since_fork=not flag_in_query(request, "straight"))
    return CompareShape(
        commit=views[-1] if views else None,
        commits=views,
        diffs=[DiffShape.of(file) for file in diffs],
        compare_same_ref=before == sha,
        web_url=f"{url}/{project.path}/-/compare/{before}...{sha}",
    )
