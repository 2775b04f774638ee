"""Starts pipelines: from a request to a stored pipeline whose first jobs wait for runners.

Decided here: in which order that happens, what a push comes to where any other request is refused, and which older
pipelines are asked whether a new one makes them redundant. What the file means is decided in `remuda.pipeline` with the
facts from `compilation`, what is stored in `core.creating`, what a redundant pipeline loses in `core.redundant`. The
HTTP edge, the schedules and the trigger jobs call `start`; `remuda.cell.projects.projects` calls `push`.

Invariant: nothing is stored before the file is compiled, and then everything in one transaction; a request that is
repeated because its answer was lost gets the pipeline it made.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from remuda.cell.core.payload.predefined_variables import of_user
from remuda.cell.core.pipelines import redundant
from remuda.cell.core.pipelines.creation import (
    PARENT,
    check_depth,
    merge_request_iid,
    new_jobs,
    new_pipeline,
    with_outcome,
)
from remuda.cell.dispatch.job_changes import JobChanges
from remuda.cell.dispatch.payload_inputs import load_variables
from remuda.cell.errors import CellError, InvalidError, MistakesError, StoreError
from remuda.cell.git.port import GitError, Reader, Repositories
from remuda.cell.pipelines.compilation import RequestFacts, compile_request, describe_pipeline, lint_request
from remuda.cell.pipelines.compiler_threads import Ask, Compilers
from remuda.cell.pipelines.cross_project_access import find_reachable_project, level_of
from remuda.cell.pipelines.included_files import FILE_LIMIT_BYTES, Outside
from remuda.cell.pipelines.lint import Linted
from remuda.cell.pipelines.remote_files import RemoteFiles
from remuda.cell.projects.refs import default_branch
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import NewJob, Page, Pipeline, PipelineFilter, Project
from remuda.cell.values.people import Level
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.lib.clock import Clock, rfc3339
from remuda.model.job import PipelineId
from remuda.pipeline import Pipeline as Compiled
from remuda.pipeline import PipelineError, SourceProblem
from remuda.pipeline.predefined_variables import of_commit
from remuda.telemetry.logs import logger

REMEMBERED_PIPELINES = 10_000
"""Pipelines whose commits are known to be kept; of others that is looked up again."""
REMOTE_SECONDS = 20.0
"""After so long with remote files a compilation asks for no further one."""
COMPILATIONS = 4
"""So many files for pipelines are compiled at a time."""
LINTS = 2
"""So many more are only checked."""

_log = logger("cell")
_T = TypeVar("_T")


class Starter(Protocol):
    """Creates pipelines; implemented by `Pipelines`."""

    async def start(self, request: PipelineRequest) -> Pipeline:
        """Create and store a pipeline. InvalidError if the file has mistakes or is missing, or if no jobs are left.

        A request with an `upstream` that was answered before gets the same pipeline again.
        """
        ...


class _NewPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that could be stored."""

    pipeline: Pipeline
    compiled: Compiled
    jobs: tuple[NewJob, ...]


class Pipelines:
    """Makes the pipelines of one cell."""

    def __init__(
        self, *, store: Store, repos: Repositories, changes: JobChanges, clock: Clock, settings: CellSettings
    ) -> None:
        self._store = store
        self._repos = repos
        self._changes = changes
        self._clock = clock
        self._settings = settings
        self._remote = RemoteFiles(settings.remote_includes, limit_bytes=FILE_LIMIT_BYTES)
        self._kept: set[PipelineId] = set()
        self._compilers = Compilers(COMPILATIONS, name="compilation")
        self._lints = Compilers(LINTS, name="lint")

    async def start(self, request: PipelineRequest) -> Pipeline:
        """The stored pipeline. MistakesError with all mistakes of the file, InvalidError when there is nothing to run.

        A request with `upstream` that was answered before gets the same pipeline again.
        """
        if request.upstream is not None:
            known = await self._store.pipelines.find_downstream(request.upstream.job.id)
            if known is not None:
                return known
        check_depth(request, await self._ancestors(request.upstream.pipeline) if request.upstream else ())
        await self._check_starter(request)
        planned = await self._compile(request)
        if planned is None:
            raise InvalidError("Missing CI config file")
        if planned.compiled.skipped is not None:
            raise InvalidError(_skip_message(planned.compiled))
        return await self._add(request, planned.pipeline, planned.jobs)

    async def _check_starter(self, request: PipelineRequest) -> None:
        """InvalidError when who wants the pipeline may not start one: developers may, on protected refs maintainers.

        A child runs as a part of its parent, which was admitted; who only says that it is one is not.
        """
        if request.source == PARENT and request.upstream is not None:
            return
        level = await level_of(self._store, request.user_id, request.project, self._clock.wall()) or 0
        branch = default_branch(self._repos, request.project)
        is_protected = new_pipeline(request, default_branch=branch, predefined={}, now=0).protected
        if level < (Level.MAINTAINER if is_protected else Level.DEVELOPER):
            name = request.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
            raise InvalidError(f"You do not have sufficient permission to run a pipeline on '{name}'; ask a maintainer")

    async def push(self, request: PipelineRequest, *, is_skipped: bool = False) -> Pipeline | None:
        """What a push comes to: a pipeline, one that has failed with the file's mistakes, or none at all.

        Its rights were checked before it began. They are checked again, because a push can take as long as it likes:
        meanwhile its branch may have become protected, or its pusher no member any more.

        A pipeline that the push asks not to have is stored too, as skipped, unless there is no file.
        """
        try:
            await self._check_starter(request)
            planned = await self._compile(request)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a commit holds, the project's other refs must go on
            described, reason = await self._describe(request), str(error)
            if is_skipped:
                return await self._add(request, replace(described, status="skipped"), ())
            if not isinstance(error, CellError):
                _log.error("a pipeline file cannot be compiled", project=request.project.path, exc_info=error)
                reason = "the cell failed to compile it; its log says how"
            return await self._add(request, replace(described, status="failed", yaml_errors=reason), ())
        if planned is not None and is_skipped:
            return await self._add(request, replace(planned.pipeline, status="skipped"), ())
        if planned is None or planned.compiled.skipped is not None:
            if request.sees is not None:
                await self._store.projects.put_seen_refs(request.project.id, dict([request.sees]))
            return None
        return await self._add(request, planned.pipeline, planned.jobs)

    async def lint(self, request: PipelineRequest) -> Linted:
        """Only compile, as `start` would, and say what came of it; InvalidError when there is no file.

        It shows values in what it says, so whoever may not start a pipeline on a protected ref gets none of those.
        """
        known = await self._gather_facts(request)
        level = await level_of(self._store, request.user_id, request.project, self._clock.wall()) or 0
        if level < Level.MAINTAINER:
            known = replace(known, variables=tuple(one for one in known.variables if not one.protected))
        found = await self._in_thread(lint_request, request, known, self._lints)
        if found is None:
            raise InvalidError("Missing CI config file")
        return found

    async def _compile(self, request: PipelineRequest) -> _NewPipeline | None:
        """What would be stored; None without a pipeline file, MistakesError or InvalidError when it cannot be."""
        known = await self._gather_facts(request)

        def plan(*given: Any) -> _NewPipeline | None:
            found = compile_request(*given)
            if found is None:
                return None
            pipeline = with_outcome(*found)
            jobs = new_jobs(found[1].jobs, pipeline, request.project, known.variables, self._settings.url)
            return _NewPipeline(pipeline=pipeline, compiled=found[1], jobs=tuple(jobs))

        try:
            return await self._in_thread(plan, request, known, self._compilers)
        except PipelineError as error:
            raise MistakesError(error.errors) from None

    async def _describe(self, request: PipelineRequest) -> Pipeline:
        """The pipeline without its file."""
        known = await self._gather_facts(request)
        return await self._in_thread(lambda *given: describe_pipeline(*given[:3]), request, known, self._compilers)

    async def _gather_facts(self, request: PipelineRequest) -> RequestFacts:
        project = request.project
        commit = await self._repos.commit(project.repo_path, request.sha)
        if commit is None:
            raise InvalidError(f"there is no commit {request.sha} in {project.path}; push it first")
        told: Mapping[str, str] = {}
        if merge_request_iid(request.ref) is not None:
            last, _ = await self._store.pipelines.list_pipelines(
                project.id, Page(size=1), PipelineFilter(ref=request.ref)
            )
            told = last[0].predefined if last else {}
        user = await self._store.people.load_user(request.user_id)
        return RequestFacts(
            variables=await load_variables(self._store, project),
            of_user=of_user(user) if user else {},
            of_commit=of_commit(
                message=commit.message,
                author=f"{commit.author_name} <{commit.author_email}>",
                timestamp=rfc3339(commit.committed_at),
            ),
            of_merge_request=told,
            default_branch=default_branch(self._repos, project),
            url=self._settings.url,
            registry=self._settings.registry_host,
            now=self._clock.now(),
        )

    async def _ancestors(self, pipeline: Pipeline) -> list[Pipeline]:
        """The pipelines that led to one, nearest first, as far as it is a child."""
        found: list[Pipeline] = []
        while pipeline.is_child and pipeline.upstream_pipeline_id is not None and len(found) < 10:
            above = await self._store.pipelines.load_pipeline(pipeline.upstream_pipeline_id)
            if above is None:
                break
            found.append(above)
            pipeline = above
        return found

    async def _in_thread(
        self,
        work: Callable[[PipelineRequest, RequestFacts, Reader, Outside], _T],
        request: PipelineRequest,
        known: RequestFacts,
        compilers: Compilers,
    ) -> _T:
        remote_seconds = 0.0

        async def fetch(url: str) -> bytes | SourceProblem:
            nonlocal remote_seconds
            if remote_seconds >= REMOTE_SECONDS:
                reason = f"the remote files before it took {REMOTE_SECONDS:g} s already"
                return SourceProblem(reason=reason, suggestion="try again, or include from a project of the cell")
            began = self._clock.monotonic()
            try:
                return await self._remote.fetch(url)
            finally:
                remote_seconds += self._clock.monotonic() - began

        def run(ask: Ask) -> _T:
            outside = Outside(
                find_project=lambda path: ask(
                    find_reachable_project(
                        self._store, request.user_id, request.project, path, Level.REPORTER, self._clock.wall()
                    )
                ),
                fetch=lambda url: ask(fetch(url)),
                host=urlsplit(self._settings.url).netloc,
                other_hosts=self._settings.component_hosts,
            )
            with self._repos.open_reader() as reading:
                return work(request, known, reading, outside)

        return await compilers.run(run)

    async def _add(self, request: PipelineRequest, new: Pipeline, jobs: Sequence[NewJob]) -> Pipeline:
        family = await self._store.pipelines.add_pipeline(
            new,
            jobs,
            now=self._clock.now(),
            sees=request.sees,
            schedule=request.schedule,
            due_at=request.due_at,
        )
        await self.keep_commit(request.project, family.pipeline)
        self._changes.announce_pipeline(family)
        if family.jobs:
            await self._cancel_redundant(family.pipeline)
        return family.pipeline

    async def _cancel_redundant(self, newest: Pipeline) -> None:
        """Ask the older pipelines of the ref whether they can go. If that fails, they only take longer."""
        try:
            for old in await self._store.pipelines.list_open_pipelines(newest.project_id, newest.ref):
                if redundant.is_replaced(old, newest):
                    applied = await self._changes.change(old.id, partial(redundant.cancel, now=self._clock.now()))
                    if applied.jobs:
                        _log.info("a newer pipeline replaces an older one", pipeline=old.id, by=newest.id)
        except CellError as error:
            _log.warning("older pipelines go on", pipeline=newest.id, error=str(error))

    async def keep_commit(self, project: Project, pipeline: Pipeline) -> None:
        """Keep the pipeline's commit by a ref of its own, by which runners fetch it whatever happens to its branch.

        Also called before a job is handed out, in case the process that stored the pipeline did not come to it.
        """
        if pipeline.id in self._kept:
            return
        ref = f"refs/pipelines/{pipeline.id}"
        if not self._repos.has_ref_file(project.repo_path, ref):
            try:
                await self._repos.put_ref(project.repo_path, ref, pipeline.sha)
            except GitError as error:
                _log.warning("a pipeline's commit cannot be kept", pipeline=pipeline.id, error=str(error))
                return
        if len(self._kept) >= REMEMBERED_PIPELINES:
            self._kept.clear()
        self._kept.add(pipeline.id)


def _skip_message(compiled: Compiled) -> str:
    """GitLab's words for it, which clients know, and the reason."""
    if compiled.left_out:
        words = "Pipeline will not run for the selected trigger. The rules configuration prevented any jobs from being "
        return f"{words}added to the pipeline: {compiled.skipped}."
    return f"Pipeline filtered out by workflow rules: {compiled.skipped}."
