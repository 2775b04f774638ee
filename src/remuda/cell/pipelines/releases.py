"""Creates releases: a tag with a name and a description, created by users or by a job with the keyword `release`.

For a job with `release` GitLab runs a tool inside the job; a cell creates the release itself when the runner reports
the job's success. If that fails, the job fails.

Invariant: a job creates its release once, however often its success is reported."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.cell.blobs.archives import read_small_entry
from remuda.cell.blobs.port import Blobs
from remuda.cell.core.access.protected_refs import Pusher, can_push, is_protected
from remuda.cell.core.payload.variables import JobContext, cell_variables, expansion, user_variables
from remuda.cell.dispatch.artifact_dependencies import Dependencies, find_dependencies
from remuda.cell.dispatch.payload_inputs import load_context
from remuda.cell.errors import (
    CellError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    MissingDependencyError,
    NotFoundError,
    StoreError,
)
from remuda.cell.git.commits import is_branch_name
from remuda.cell.pipelines.cross_project_access import level_of
from remuda.cell.projects.projects import Projects
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Project, Release, Runner
from remuda.lib.clock import Clock, parse_shown_time
from remuda.model.job import JobId, RunnerId
from remuda.model.runner import RunnerType
from remuda.pipeline import ExpansionError, JobSpec

DESCRIPTION_LIMIT_BYTES = 1024 * 1024
LINK_TYPES = ("other", "runbook", "image", "package")

_MAX_FILE_NAME = 255
_ADDRESS = re.compile(r"(https?|ftp)://\S+", re.IGNORECASE)


class NewRelease(msgspec.Struct, frozen=True, kw_only=True):
    tag: str
    name: str = ""
    description: str = ""
    ref: str = ""
    """Where a missing tag is created: a branch, a tag or a commit."""
    tag_message: str = ""
    milestones: tuple[str, ...] = ()
    released_at: float | None = None
    links: tuple[Mapping[str, str], ...] = ()
    job_id: JobId | None = None
    user_id: int
    """Who creates it; also the user of the pipeline that a new tag starts."""


def parse_time(text: str) -> float:
    """Parse an ISO 8601 time (without zone: UTC) to seconds since the epoch. Raises InvalidError if that fails."""
    try:
        return parse_shown_time(text)
    except ValueError:
        raise InvalidError(f"released_at: {text!r} is no time; write it like 2026-01-31T08:00:00Z") from None


class Releases:
    def __init__(self, *, store: Store, blobs: Blobs, projects: Projects, clock: Clock, public_url: str) -> None:
        self._store = store
        self._blobs = blobs
        self._projects = projects
        self._clock = clock
        self._public_url = public_url

    async def find(self, project: Project, tag: str) -> Release | None:
        return next(
            (release for release in await self._store.schedules.list_releases(project.id) if release.tag == tag), None
        )

    async def create(self, project: Project, new: NewRelease) -> Release:
        """Store a release, and create its tag if it does not exist. If the same job has already created the release,
        that one is returned. Raises ConflictError if the tag already has another release, InvalidError if a value is
        invalid, ForbiddenError as `check_tag`."""
        if not is_branch_name(new.tag):
            raise InvalidError(f"tag_name: {new.tag!r} is no name for a tag")
        await self.check_tag(project, new.tag, new.user_id)
        links = check_links(new.links)
        if existing := await self.find(project, new.tag):
            return _check_own(existing, new)
        sha = await self._tag(project, new)
        now = self._clock.now()
        release = Release(
            project_id=project.id,
            tag=new.tag,
            name=new.name or new.tag,
            description=new.description,
            created_at=now,
            released_at=new.released_at if new.released_at is not None else now,
            user_id=new.user_id,
            sha=sha,
            milestones=new.milestones,
            links=links,
            job_id=new.job_id,
        )
        if not await self._store.schedules.put_release(release, replace=False):
            release = _check_own(await self.find(project, new.tag) or release, new)
        return release

    async def check_tag(self, project: Project, tag: str, user_id: int) -> None:
        """Raise ForbiddenError if the tag is protected and the user may not create it: then the user may not create,
        change or delete its release either, whether the tag exists or not."""
        ref, rules = f"refs/tags/{tag}", self._projects.ref_rules(project)
        if is_protected(rules, ref):
            level = await level_of(self._store, user_id, project, self._clock.wall()) or 0
            if not can_push(rules, ref, Pusher(user_id, level)):
                raise ForbiddenError(f"the tag {tag} is protected; only those whom its rules admit can do this")

    async def _tag(self, project: Project, new: NewRelease) -> str:
        """Return the commit hash of the release's tag. If the tag does not exist, create it at `new.ref`, which starts
        a pipeline for the tag. Raises InvalidError if `new.ref` is then missing or unknown."""
        repos, repo = self._projects.repos, project.repo_path
        sha = await repos.commit_of(repo, f"refs/tags/{new.tag}")
        if sha is not None:
            return sha
        if not new.ref:
            raise InvalidError("Ref is not specified")
        sha = await repos.resolve(repo, new.ref.removeprefix("refs/heads/").removeprefix("refs/tags/"))
        if sha is None:
            raise InvalidError(f"the tag {new.tag} cannot be created: there is no {new.ref!r} in the repository")
        ref = f"refs/tags/{new.tag}"
        await self._projects.check_namesake(project, ref)
        async with self._projects.track_push(project):
            try:
                await repos.add_tag(
                    repo,
                    new.tag,
                    sha,
                    message=new.tag_message,
                    at=int(self._clock.now()),
                    before_move=lambda target: self._projects.note_push(project, {ref: target}, new.user_id),
                )
            except ConflictError:
                sha = await repos.commit_of(repo, ref) or sha
        return sha

    # a job's own release

    async def create_for_job(self, job: Job, spec: JobSpec | None) -> str | None:
        """Create the release of a job that has succeeded, if its spec has the keyword `release`. Returns an error
        message if that failed, so that the job fails; None otherwise. Raises StoreError if the store is unavailable;
        the runner then reports the success again."""
        if spec is None or spec.release is None:
            return None
        try:
            context, dependencies = await self._load_context(job)
            new = _evaluate(context, spec.release)
            await self._refuse_endless(context, new.tag)
            new = replace(new, description=await self._text(context, dependencies, new.description))
            await self.create(context.project, new)
        except StoreError:
            raise
        except (CellError, ExpansionError) as error:
            return f"the release could not be created: {error}"
        return None

    async def _load_context(self, job: Job) -> tuple[JobContext, Dependencies]:
        runner = await self._store.runners.load_runner(job.runner_id) if job.runner_id is not None else None
        # A runner may be removed while its jobs run; then only its id is known.
        runner = runner or Runner(
            id=job.runner_id or RunnerId(0), type=RunnerType.INSTANCE, token_hash="", created_at=job.created_at
        )
        context = await load_context(self._store, job, runner, public_url=self._public_url)
        try:
            dependencies = await find_dependencies(self._store, context, now=self._clock.wall())
        except MissingDependencyError:
            dependencies = Dependencies()
        return replace(context, inherited=dependencies.variables), dependencies

    async def _refuse_endless(self, context: JobContext, tag: str) -> None:
        """Raise InvalidError if the job's pipeline runs for a tag that a release job has created, and this job would
        create another tag: each new tag starts a pipeline, so this would never end."""
        if not context.pipeline.tag or tag == context.pipeline.ref:
            return
        cause = await self.find(context.project, context.pipeline.ref)
        if cause is not None and cause.job_id is not None:
            raise InvalidError(
                f"this pipeline runs because a release created the tag {context.pipeline.ref}; to create {tag} here "
                "would start pipelines without end. Add to the job: rules: [{if: $CI_COMMIT_TAG, when: never}, "
                "{when: on_success}]"
            )

    async def _text(self, context: JobContext, dependencies: Dependencies, description: str) -> str:
        """Return the description of a release. If `description` is the path of a file, that is the content of the file:
        from the job's own artifacts, from the artifacts of jobs that it depends on, or from the repository."""
        path = description.strip().removeprefix("./")
        if not path or len(path) > _MAX_FILE_NAME or "\n" in path or path.startswith("/"):
            return description
        own = [
            artifact for artifact in await self._store.jobs.list_artifacts(context.job.id) if artifact.type == "archive"
        ]
        for archive in [*own, *(source.archive for source in reversed(dependencies.sources))]:
            try:
                content = await read_small_entry(self._blobs, archive.blob, path, limit_bytes=DESCRIPTION_LIMIT_BYTES)
                return content.decode(errors="replace")
            except (NotFoundError, InvalidError):
                continue
        content_at_commit = await self._projects.repos.file(
            context.project.repo_path, context.pipeline.sha, path, limit_bytes=DESCRIPTION_LIMIT_BYTES
        )
        return description if content_at_commit is None else content_at_commit.decode(errors="replace")


def _check_own(existing: Release, new: NewRelease) -> Release:
    """Return the existing release if the same job has created it. Raises ConflictError otherwise."""
    if new.job_id is None or existing.job_id != new.job_id:
        raise ConflictError(f"Release already exists: {existing.tag}")
    return existing


def _evaluate(context: JobContext, keyword: Mapping[str, Any]) -> NewRelease:
    """Expand the variables of a `release` keyword. Raises InvalidError if the tag is empty or a time is invalid."""
    expand = expansion([*cell_variables(context), *user_variables(context)]).expand
    texts = {key: expand(value) for key, value in keyword.items() if isinstance(value, str)}
    links = keyword.get("assets", {}).get("links", ())
    if not texts.get("tag_name"):
        raise InvalidError(f"tag_name {keyword.get('tag_name')!r} expands to nothing; give its variables a value")
    return NewRelease(
        tag=texts["tag_name"],
        name=texts.get("name", ""),
        description=texts.get("description", ""),
        ref=texts.get("ref", "") or context.pipeline.sha,
        tag_message=texts.get("tag_message", ""),
        milestones=tuple(expand(milestone) for milestone in keyword.get("milestones", ())),
        released_at=parse_time(texts["released_at"]) if texts.get("released_at") else None,
        links=tuple({key: expand(value) for key, value in link.items()} for link in links),
        job_id=context.job.id,
        user_id=context.pipeline.user_id,
    )


def check_links(links: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], ...]:
    """Copy the asset links. InvalidError for a missing name, a bad address or type, or equal names or addresses."""
    for link in links:
        if not link.get("name") or not _ADDRESS.fullmatch(link.get("url", "")):
            raise InvalidError("assets: a link has a name and an address that begins with http://, https:// or ftp://")
        if link.get("link_type", "other") not in LINK_TYPES:
            raise InvalidError(f"assets: link_type is one of {', '.join(LINK_TYPES)}")
    for what in ("name", "url"):
        if len({link[what] for link in links}) < len(links):
            raise InvalidError(f"assets: two links have the same {what}")
    return tuple(dict(link) for link in links)
