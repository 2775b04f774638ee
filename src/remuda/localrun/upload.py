"""Uploads the snapshot and other projects of a run to its cell, and creates the pipeline there. Its request has what
rules depend on (event, variables, compared commit), so that the cell compiles the same jobs."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.lib.exits import CommandError
from remuda.lib.lent_repository import LENDS
from remuda.lib.processes import reap
from remuda.localrun.sources.repository import Repository
from remuda.localrun.sources.snapshot import COMPARED, Snapshot, mirror, push_environment, take
from remuda.localrun.sources.worktree import facts_of
from remuda.wire.user_api import NewPipelineRequest

if TYPE_CHECKING:
    from remuda.localrun.compilation import PipelineFile
    from remuda.localrun.embedded import Cell
    from remuda.pipeline import Facts
    from remuda.wire.user_client import PipelineInfo

SECRET = "a secret of remuda run"
"""Description of a variable that the command stores in the cell."""
REFS_AT_ONCE = 500
"""The number of refspecs per `git push`, which has a limit on the length of its command line."""
_MERGE_REQUEST_NAMES = ("SOURCE_BRANCH_NAME", "TARGET_BRANCH_NAME", "TITLE")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs of the pipeline run: those with these names or in these stages, or all if both are empty; with
    `with_needs`, also the jobs that they need."""

    jobs: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    with_needs: bool = True


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A project to upload: its path, its default branch and the snapshot of its repository."""

    path: str
    default_branch: str
    snapshot: Snapshot


def repository_paths(file: "PipelineFile", folder: Path) -> list[Path]:
    """Return the paths at which `pack` will create the snapshot repositories, that of the user's project first."""
    return [folder / "own.git", *(folder / f"other-{number}.git" for number, _ in enumerate(file.projects))]


def pack(file: "PipelineFile", compared: frozenset[str], folder: Path) -> tuple[Package, list[Package]]:
    """Make the snapshots of the user's project and of other projects below `folder`, and return them in this order.
    `compared`: refs that rules compare with."""
    facts = file.facts
    place, *other_places = repository_paths(file, folder)
    snapshot = take(file.folder, file.repository, facts, place, compared=sorted(compared))
    own = Package(path=facts.predefined["CI_PROJECT_PATH"], default_branch=facts.default_branch, snapshot=snapshot)
    others = [
        _pack_other(path, clone.resolve(), other)
        for (path, clone), other in zip(file.projects.items(), other_places, strict=True)
    ]
    return own, others


def _pack_other(path: str, folder: Path, git_dir: Path) -> Package:
    repository = Repository.at(folder)
    facts = facts_of(folder, repository=repository)
    if repository is None or repository.is_part:
        snapshot = take(folder, repository, facts, git_dir)
        return Package(path=path, default_branch=facts.ref, snapshot=snapshot)
    default = repository.default_branch() or facts.default_branch
    return Package(path=path, default_branch=default, snapshot=mirror(repository, facts, default, git_dir))


async def deliver(
    cell: "Cell", own: Package, others: list[Package], file: "PipelineFile", choice: Choice, *, links: Path | None
) -> "PipelineInfo":
    """Upload all projects to the cell and create the pipeline of `own`, the user's. `links`: folder of links to the
    cell's repositories if these use the snapshots' objects in place (only refs are set); None: push the commits."""
    other_ids = [await _upload(cell, package, links) for package in others]
    project = await _upload(cell, own, links)
    if other_ids:
        # One person owns all projects, so the jobs of each may read the others.
        for project_id in (*other_ids, project):
            await cell.client.let_in_all_jobs(project_id)
    # Only a platform whose data is kept can have secrets of an earlier run.
    if file.secrets or links is None:
        await _put_secrets(cell, project, file)
    return await cell.client.create_pipeline(project, request_of(file, own.snapshot, choice))


async def _put_secrets(cell: "Cell", project: int, file: "PipelineFile") -> None:
    """Let the project in the cell have exactly these secrets as variables."""
    path = f"/api/v4/projects/{project}/variables"
    for old in await cell.client.pages(path):
        if old["description"] == SECRET:
            await cell.client.call("DELETE", f"{path}/{old['key']}")
    for name, secret in file.secrets.items():
        kind = "file" if secret.is_file else "env_var"
        body = {"key": name, "value": secret.value, "variable_type": kind, "raw": True, "description": SECRET}
        await cell.client.call("POST", path, {**body, "masked": not secret.mask_problem})


def request_of(file: "PipelineFile", snapshot: Snapshot, choice: Choice) -> NewPipelineRequest:
    """Return the request that makes the cell compile the file with this command's event, variables and inputs."""
    facts = file.facts
    return NewPipelineRequest(
        ref=snapshot.ref,
        sha=snapshot.sha,
        source=facts.source,
        before_sha=facts.predefined.get("CI_COMMIT_BEFORE_SHA", ""),
        # The cell expands references in variables; raw ones must not have any.
        variables={
            name: value.replace("$", "$$") if name in facts.raw else value
            for name, value in facts.variables.items()
            if name not in file.secrets
        },
        inputs=file.inputs,
        text=file.text,
        jobs=choice.jobs,
        stages=choice.stages,
        with_needs=choice.with_needs,
        changes_since=snapshot.since,
        predefined=_predefined_variables(facts),
    )


def _predefined_variables(facts: "Facts") -> Mapping[str, str]:
    """Return the predefined variables that the cell cannot compute: the user, the server's name, the merge request."""
    variables = facts.predefined
    names = [name for name in variables if name.startswith("GITLAB_USER_")]
    names += [f"CI_MERGE_REQUEST_{name}" for name in _MERGE_REQUEST_NAMES]
    if variables.get("CI_SERVER_HOST") != "localhost":
        # For rules. Jobs that call the server use the other CI_SERVER_* variables, which name the cell.
        names += ["CI_SERVER_HOST", "CI_SERVER_FQDN"]
    return {name: variables[name] for name in names if name in variables}


async def _upload(cell: "Cell", package: Package, links: Path | None) -> int:
    """Create the project in the cell if missing, upload its refs, and return its id. `links`: folder of links to the
    cell's repositories if these use the snapshots' objects in place (only refs are set); None: push."""
    project = await cell.client.ensure_project(package.path, default_branch=package.default_branch)
    if links is not None:
        (links / f"{package.path}.git" / LENDS).touch()
        await cell.client.put_refs(project.id, package.snapshot.refs)
        return project.id
    # The cell may have a snapshot of an earlier run that is not an ancestor of this one.
    await cell.client.allow_force_pushes(project.id)
    refspecs, removals = refspecs_of(package.snapshot.refs)
    for start in range(0, len(refspecs), REFS_AT_ONCE):
        await _git_push(
            project.http_url_to_repo, package.snapshot.git_dir, refspecs[start : start + REFS_AT_ONCE], cell
        )
    if removals:
        await _git_push(project.http_url_to_repo, package.snapshot.git_dir, removals, cell)
    return project.id


def refspecs_of(refs: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return refspecs to push, and refspecs that delete temporary branches afterwards. Commits that rules compare with
    are pushed as temporary branches: the cell needs the commits, but accepts only branches, tags and merge requests."""
    temporary = {ref: f"refs/heads/remuda-{ref.removeprefix('refs/')}" for ref in refs if ref.startswith(COMPARED)}
    pushes = [f"{sha}:{temporary.get(ref, ref)}" for ref, sha in refs.items()]
    return pushes, [f":{name}" for name in temporary.values()]


async def _git_push(url: str, git_dir: Path, refspecs: list[str], cell: "Cell") -> None:
    process = await asyncio.create_subprocess_exec(
        *("git", "push", "--quiet", "--force", "--no-verify", url, *refspecs),
        env=push_environment(git_dir, cell.authorization),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, complaint = await process.communicate()
    except BaseException:
        if process.returncode is None:
            process.kill()
            await reap(process)
        raise
    if process.returncode != 0:
        raise CommandError(f"the snapshot could not be pushed: {complaint.decode(errors='replace').strip()}")
