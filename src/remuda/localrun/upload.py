"""Brings what a run is about into its cell: the snapshot, the other projects, and then the pipeline itself.

Decided here: which refs of another project's clone the cell gets, and how the facts of a work tree become the request
for a pipeline, so that the cell judges the file as it was judged here. `local_run` is the caller.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from remuda.cli.exits import CommandError
from remuda.lib.lent_repository import LENDS
from remuda.lib.processes import reap
from remuda.localrun.sources.repository import Repository
from remuda.localrun.sources.snapshot import COMPARED, Snapshot, mirror, push_environment, take
from remuda.localrun.sources.worktree import facts_of
from remuda.wire.user_api import NewPipelineRequest

if TYPE_CHECKING:
    from remuda.localrun.compilation import Ready
    from remuda.localrun.embedded import Cell
    from remuda.pipeline import Facts
    from remuda.wire.user_client import PipelineInfo

REFS_AT_ONCE = 500
"""One command takes so many."""
_OF_MERGE_REQUEST = ("SOURCE_BRANCH_NAME", "TARGET_BRANCH_NAME", "TITLE")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs of the pipeline are wanted."""

    jobs: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    with_needs: bool = True


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """All that a cell gets: a project by its path, with its default branch and its repository."""

    path: str
    default_branch: str
    snapshot: Snapshot


def places(ready: "Ready", folder: Path) -> list[Path]:
    """Where `pack` puts the repositories: the folder's own, then those of the other projects."""
    return [folder / "own.git", *(folder / f"other-{number}.git" for number, _ in enumerate(ready.projects))]


def pack(ready: "Ready", compared: frozenset[str], folder: Path) -> tuple[Package, list[Package]]:
    """The folder's own package, and those of the other projects; new repositories go below `folder`."""
    facts = ready.facts
    place, *other_places = places(ready, folder)
    snapshot = take(ready.folder, ready.repository, facts, place, compared=sorted(compared))
    own = Package(path=facts.predefined["CI_PROJECT_PATH"], default_branch=facts.default_branch, snapshot=snapshot)
    others = [
        _other(path, clone.resolve(), other)
        for (path, clone), other in zip(ready.projects.items(), other_places, strict=True)
    ]
    return own, others


def _other(path: str, folder: Path, git_dir: Path) -> Package:
    repository = Repository.at(folder)
    facts = facts_of(folder, repository=repository)
    if repository is None or repository.is_part:
        snapshot = take(folder, repository, facts, git_dir)
        return Package(path=path, default_branch=facts.ref, snapshot=snapshot)
    default = repository.default_branch() or facts.default_branch
    return Package(path=path, default_branch=default, snapshot=mirror(repository, facts, default, git_dir))


async def deliver(
    cell: "Cell", own: Package, others: list[Package], ready: "Ready", choice: Choice, *, links: Path | None
) -> "PipelineInfo":
    """Bring everything into the cell, then create the pipeline.

    `links` is where the repositories of a cell that borrows all objects are found: it lends them in turn. To a cell
    without they are pushed.
    """
    brought = [await _bring(cell, package, links) for package in others]
    project = await _bring(cell, own, links)
    if brought:
        # All is one person's: jobs of each project reach the others as far as that person may.
        for project_id in (*brought, project):
            await cell.client.let_in_all_jobs(project_id)
    return await cell.client.create_pipeline(project, request_of(ready, own.snapshot, choice))


def request_of(ready: "Ready", snapshot: Snapshot, choice: Choice) -> NewPipelineRequest:
    """The pipeline that the facts call for."""
    facts = ready.facts
    told = facts.predefined
    return NewPipelineRequest(
        ref=snapshot.ref,
        sha=snapshot.sha,
        source=facts.source,
        before_sha=told.get("CI_COMMIT_BEFORE_SHA", ""),
        variables={name: _escaped(value) if name in facts.raw else value for name, value in facts.variables.items()},
        inputs=ready.inputs,
        text=ready.text,
        jobs=choice.jobs,
        stages=choice.stages,
        with_needs=choice.with_needs,
        changes_since=snapshot.since,
        predefined=_predefined(facts),
    )


def _escaped(value: str) -> str:
    """A value without references, for whoever looks for some."""
    return value.replace("$", "$$")


def _predefined(facts: "Facts") -> Mapping[str, str]:
    """What the cell cannot know: who and where the user is, what the merge request is about."""
    told = facts.predefined
    names = [name for name in told if name.startswith("GITLAB_USER_")]
    names += [f"CI_MERGE_REQUEST_{name}" for name in _OF_MERGE_REQUEST]
    if told.get("CI_SERVER_HOST") != "localhost":
        # Rules ask for these; jobs that call the server use its addresses, which are the cell's.
        names += ["CI_SERVER_HOST", "CI_SERVER_FQDN"]
    return {name: told[name] for name in names if name in told}


async def _bring(cell: "Cell", package: Package, links: Path | None) -> int:
    """The project with everything in it; its id."""
    project = await cell.client.ensure_project(package.path, default_branch=package.default_branch)
    if links is not None:
        (links / f"{package.path}.git" / LENDS).touch()
        await cell.client.put_refs(project.id, package.snapshot.refs)
        return project.id
    # The cell may have an older snapshot, which this one does not begin with.
    await cell.client.allow_force_pushes(project.id)
    refspecs, removals = to_push(package.snapshot.refs)
    for start in range(0, len(refspecs), REFS_AT_ONCE):
        await _git_push(
            project.http_url_to_repo, package.snapshot.git_dir, refspecs[start : start + REFS_AT_ONCE], cell
        )
    if removals:
        await _git_push(project.http_url_to_repo, package.snapshot.git_dir, removals, cell)
    return project.id


def to_push(refs: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What is pushed, and what is removed again once it is there.

    A cell takes branches, tags and merge requests only; what rules compare with is no more than commits that it must
    have, so these come by a branch that does not stay.
    """
    brought = {ref: f"refs/heads/remuda-{ref.removeprefix('refs/')}" for ref in refs if ref.startswith(COMPARED)}
    pushed = [f"{sha}:{brought.get(ref, ref)}" for ref, sha in refs.items()]
    return pushed, [f":{name}" for name in brought.values()]


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
