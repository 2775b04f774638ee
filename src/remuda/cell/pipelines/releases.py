"""Releases: named states of a project at a tag, made by people or by a job with `release`.

Decided here: what a release needs to exist (a tag, which is made where it is missing), and that a job with `release`
makes one by its success: GitLab runs a tool inside the job for that, a cell does it itself when the runner reports the
success, with the job's variables. A release that cannot be made turns the success into a failure. The HTTP edge calls
both.

Invariant: a job makes its release once, however often its success is reported.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.cell.blobs.archives import read_small_entry
from remuda.cell.blobs.port import Blobs
from remuda.cell.core.payload.variables import JobContext, cell_variables, expansion, user_variables
from remuda.cell.dispatch.artifact_dependencies import Dependencies, find_dependencies
from remuda.cell.dispatch.payload_inputs import load_context
from remuda.cell.errors import (
    CellError,
    ConflictError,
    InvalidError,
    MissingDependencyError,
    NotFoundError,
    StoreError,
)
from remuda.cell.git.commits import is_branch_name
from remuda.cell.projects.projects import Projects
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Project, Release, Runner
from remuda.lib.clock import Clock
from remuda.model.job import JobId, RunnerId
from remuda.model.runner import RunnerType
from remuda.pipeline import ExpansionError, JobSpec

DESCRIPTION_LIMIT_BYTES = 1024 * 1024
LINK_TYPES = ("other", "runbook", "image", "package")

_MAX_FILE_NAME = 255
_ADDRESS = re.compile(r"(https?|ftp)://\S+", re.IGNORECASE)


class NewRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A release that somebody wants."""

    tag: str
    name: str = ""
    description: str = ""
    ref: str = ""
    """Where a tag that does not exist is made: a branch, a tag or a commit."""
    tag_message: str = ""
    milestones: tuple[str, ...] = ()
    released_at: float | None = None
    links: tuple[Mapping[str, str], ...] = ()
    job_id: JobId | None = None
    user_id: int
    """Who wants it; the pipeline of a tag that it makes is this person's."""


def parse_time(text: str) -> float:
    """A time as people write it; InvalidError when it is none."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise InvalidError(f"released_at: {text!r} is no time; write it like 2026-01-31T08:00:00Z") from None


class Releases:
    """The releases of one cell."""

    def __init__(self, *, store: Store, blobs: Blobs, projects: Projects, clock: Clock, public_url: str) -> None:
        self._store = store
        self._blobs = blobs
        self._projects = projects
        self._clock = clock
        self._public_url = public_url

    async def find(self, project: Project, tag: str) -> Release | None:
        """The release at a tag."""
        return next(
            (release for release in await self._store.schedules.list_releases(project.id) if release.tag == tag), None
        )

    async def create(self, project: Project, wanted: NewRelease) -> Release:
        """Store a release, and its tag where there is none. ConflictError when there is one, InvalidError when it
        cannot be."""
        if not is_branch_name(wanted.tag):
            raise InvalidError(f"tag_name: {wanted.tag!r} is no name for a tag")
        links = check_links(wanted.links)
        if there := await self.find(project, wanted.tag):
            return _check_own(there, wanted)
        sha = await self._tag(project, wanted)
        now = self._clock.now()
        release = Release(
            project_id=project.id,
            tag=wanted.tag,
            name=wanted.name or wanted.tag,
            description=wanted.description,
            created_at=now,
            released_at=wanted.released_at if wanted.released_at is not None else now,
            sha=sha,
            milestones=wanted.milestones,
            links=links,
            job_id=wanted.job_id,
        )
        if not await self._store.schedules.put_release(release, replace=False):
            release = _check_own(await self.find(project, wanted.tag) or release, wanted)
        return release

    async def _tag(self, project: Project, wanted: NewRelease) -> str:
        """The tag's commit; a tag that is not there is made, and starts what it starts."""
        repos, repo = self._projects.repos, project.repo_path
        sha = await repos.commit_of(repo, f"refs/tags/{wanted.tag}")
        if sha is not None:
            return sha
        if not wanted.ref:
            raise InvalidError("Ref is not specified")
        sha = await repos.resolve(repo, wanted.ref.removeprefix("refs/heads/").removeprefix("refs/tags/"))
        if sha is None:
            raise InvalidError(f"the tag {wanted.tag} cannot be made: there is no {wanted.ref!r} in the repository")
        ref = f"refs/tags/{wanted.tag}"
        await self._projects.check_namesake(project, ref)
        async with self._projects.track_push(project):
            try:
                await repos.add_tag(
                    repo,
                    wanted.tag,
                    sha,
                    message=wanted.tag_message,
                    at=int(self._clock.now()),
                    before_move=lambda target: self._projects.note_push(project, {ref: target}, wanted.user_id),
                )
            except ConflictError:
                sha = await repos.commit_of(repo, ref) or sha
        return sha

    # a job's own release

    async def create_for_job(self, job: Job, spec: JobSpec | None) -> str | None:
        """Make the release that a job's success brings, if it brings one; why that cannot be, None when all is well.

        StoreError goes through: the runner reports again.
        """
        if spec is None or spec.release is None:
            return None
        try:
            context, found = await self._circumstances(job)
            wanted = _evaluate(context, spec.release)
            await self._refuse_endless(context, wanted.tag)
            wanted = replace(wanted, description=await self._text(context, found, wanted.description))
            await self.create(context.project, wanted)
        except StoreError:
            raise
        except (CellError, ExpansionError) as error:
            return f"the release could not be made: {error}"
        return None

    async def _circumstances(self, job: Job) -> tuple[JobContext, Dependencies]:
        runner = await self._store.runners.load_runner(job.runner_id) if job.runner_id is not None else None
        # A runner may be removed while its jobs run; their variables then say of it only its number.
        known = runner or Runner(
            id=job.runner_id or RunnerId(0), type=RunnerType.INSTANCE, token_hash="", created_at=job.created_at
        )
        context = await load_context(self._store, job, known, public_url=self._public_url)
        try:
            found = await find_dependencies(self._store, context, now=self._clock.wall())
        except MissingDependencyError:
            found = Dependencies()
        return replace(context, inherited=found.variables), found

    async def _refuse_endless(self, context: JobContext, tag: str) -> None:
        """A tag that a release made starts a pipeline; if that one releases under yet another name, so does the next,
        for ever."""
        if not context.pipeline.tag or tag == context.pipeline.ref:
            return
        cause = await self.find(context.project, context.pipeline.ref)
        if cause is not None and cause.job_id is not None:
            raise InvalidError(
                f"this pipeline runs because a release made the tag {context.pipeline.ref}; to make {tag} from here "
                "would go on for ever. Add to the job: rules: [{if: $CI_COMMIT_TAG, when: never}, {when: on_success}]"
            )

    async def _text(self, context: JobContext, found: Dependencies, description: str) -> str:
        """The description itself, or what is in the file that it names: one that the job left or got from others, or
        one of the repository."""
        path = description.strip().removeprefix("./")
        if not path or len(path) > _MAX_FILE_NAME or "\n" in path or path.startswith("/"):
            return description
        own = [one for one in await self._store.jobs.list_artifacts(context.job.id) if one.type == "archive"]
        for archive in [*own, *(source.archive for source in reversed(found.sources))]:
            try:
                content = await read_small_entry(self._blobs, archive.blob, path, limit_bytes=DESCRIPTION_LIMIT_BYTES)
                return content.decode(errors="replace")
            except (NotFoundError, InvalidError):
                continue
        kept = await self._projects.repos.file(
            context.project.repo_path, context.pipeline.sha, path, limit_bytes=DESCRIPTION_LIMIT_BYTES
        )
        return description if kept is None else kept.decode(errors="replace")


def _check_own(there: Release, wanted: NewRelease) -> Release:
    """The release that is there already, if the same job made it."""
    if wanted.job_id is None or there.job_id != wanted.job_id:
        raise ConflictError(f"Release already exists: {there.tag}")
    return there


def _evaluate(context: JobContext, asked: Mapping[str, Any]) -> NewRelease:
    expand = expansion([*cell_variables(context), *user_variables(context)]).expand
    texts = {key: expand(value) for key, value in asked.items() if isinstance(value, str)}
    links = asked.get("assets", {}).get("links", ())
    if not texts.get("tag_name"):
        raise InvalidError(f"tag_name {asked.get('tag_name')!r} comes to nothing; give its variables a value")
    return NewRelease(
        tag=texts["tag_name"],
        name=texts.get("name", ""),
        description=texts.get("description", ""),
        ref=texts.get("ref", "") or context.pipeline.sha,
        tag_message=texts.get("tag_message", ""),
        milestones=tuple(expand(one) for one in asked.get("milestones", ())),
        released_at=parse_time(texts["released_at"]) if texts.get("released_at") else None,
        links=tuple({key: expand(value) for key, value in link.items()} for link in links),
        job_id=context.job.id,
        user_id=context.pipeline.user_id,
    )


def check_links(links: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], ...]:
    """Links of assets by GitLab's rules; InvalidError when they break them."""
    for link in links:
        if not link.get("name") or not _ADDRESS.fullmatch(link.get("url", "")):
            raise InvalidError("assets: a link has a name and an address that begins with http://, https:// or ftp://")
        if link.get("link_type", "other") not in LINK_TYPES:
            raise InvalidError(f"assets: link_type is one of {', '.join(LINK_TYPES)}")
    for what in ("name", "url"):
        if len({link[what] for link in links}) < len(links):
            raise InvalidError(f"assets: two links have the same {what}")
    return tuple(dict(link) for link in links)
