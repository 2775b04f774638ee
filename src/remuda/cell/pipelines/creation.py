"""Creates pipelines: turns a request into a stored pipeline whose first jobs wait for runners.

Invariant: a pipeline is stored in one transaction, after its file was compiled. A trigger job starts at most one
pipeline: if its request is repeated, the existing pipeline is returned."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from remuda.cell.core.access.pipeline_variables import can_set_variables, explain_refusal
from remuda.cell.core.access.protected_refs import Pusher, can_run, rules_of
from remuda.cell.core.payload.predefined_variables import of_user
from remuda.cell.core.pipelines import redundant
from remuda.cell.core.pipelines.config_path import with_config_path
from remuda.cell.core.pipelines.creation import (
    PARENT,
    check_depth,
    merge_request_iid,
    new_jobs,
    with_outcome,
)
from remuda.cell.dispatch.job_changes import JobChanges
from remuda.cell.dispatch.payload_inputs import load_variables
from remuda.cell.errors import CellError, InvalidError, MistakesError, StoreError
from remuda.cell.git.port import GitError, Reader, Repositories
from remuda.cell.pipelines.compilation import (
    RequestFacts,
    compile_request,
    describe_pipeline,
    lint_request,
    read_form,
)
from remuda.cell.pipelines.compiler_threads import Ask, Compilers
from remuda.cell.pipelines.cross_project_access import find_reachable_project, level_of
from remuda.cell.pipelines.included_files import FILE_LIMIT_BYTES, Outside, decode
from remuda.cell.pipelines.lint import Linted
from remuda.cell.pipelines.remote_files import RemoteFiles
from remuda.cell.projects.refs import default_branch
from remuda.cell.settings import CellSettings
from remuda.cell.store.ports import Store
from remuda.cell.values import Family, NewJob, Page, Pipeline, PipelineFilter, Project
from remuda.cell.values.people import Level
from remuda.cell.values.pipeline_requests import PipelineRequest
from remuda.cell.values.pushes import PushOutcome
from remuda.lib.clock import Clock, rfc3339
from remuda.model.job import PipelineId
from remuda.pipeline import Pipeline as Compiled
from remuda.pipeline import PipelineError, SourceProblem, StartForm
from remuda.pipeline.predefined_variables import of_commit
from remuda.pipeline.templates import CACHE_SECONDS, GITLAB_TEMPLATES, find_template, is_address
from remuda.telemetry.logs import logger

REMEMBERED_PIPELINES = 10_000
"""How many pipelines are remembered whose commits have a ref; for others the ref is looked up again."""
REMOTE_SECONDS = 20.0
"""Time limit for fetching remote files in one compilation. After it no more are fetched."""
MAX_RELEASE_DESCRIPTION = 1024
"""How many characters CI_RELEASE_DESCRIPTION has at most, as in GitLab."""
COMPILATIONS = 4
"""How many files are compiled for pipelines at the same time."""
LINTS = 2
"""How many files are compiled for lint calls at the same time, besides those for pipelines."""

_TEMPLATE_HINT = (
    f"ask the operator to set REMUDA_TEMPLATES to a folder or server that has it (GitLab's own: {GITLAB_TEMPLATES}), "
    "or copy the file into a project and include it from there"
)

_log = logger("cell")
_T = TypeVar("_T")


class Starter(Protocol):
    """The interface for creating pipelines; implemented by `Pipelines`."""

    async def start(self, request: PipelineRequest) -> Pipeline:
        """Create and store a pipeline. A request of a trigger job (`request.upstream`) that has already started its
        pipeline returns the existing one. Raises InvalidError if the pipeline file is missing or invalid, or if its
        rules leave no jobs."""
        ...


class _NewPipeline(msgspec.Struct, frozen=True, kw_only=True):
    pipeline: Pipeline
    compiled: Compiled
    jobs: tuple[NewJob, ...]


class Pipelines:
    def __init__(
        self, *, store: Store, repos: Repositories, changes: JobChanges, clock: Clock, settings: CellSettings
    ) -> None:
        self._store = store
        self._repos = repos
        self._changes = changes
        self._clock = clock
        self._settings = settings
        self._remote = RemoteFiles(settings.remote_includes, limit_bytes=FILE_LIMIT_BYTES)
        templates = (settings.templates,) if is_address(settings.templates) else ()
        self._template_server = RemoteFiles(templates, limit_bytes=2 * FILE_LIMIT_BYTES)
        self._kept: set[PipelineId] = set()
        self._compilers = Compilers(COMPILATIONS, name="compilation")
        self._lints = Compilers(LINTS, name="lint")

    async def start(self, request: PipelineRequest) -> Pipeline:
        """Create and store a pipeline, or return the one that the trigger job `request.upstream` has already started.
        Raises MistakesError with all mistakes of the file; InvalidError if the user may not start it, the file is
        missing, the rules leave no jobs, or the chain of pipelines that started each other is too long; ConflictError
        if the schedule of the request is not due any more."""
        request = with_config_path(request)
        if request.upstream is not None:
            started = await self._store.pipelines.find_downstream(request.upstream.job.id)
            if started is not None:
                return started
        check_depth(request, await self._ancestors(request.upstream.pipeline) if request.upstream else ())
        await self._check_starter(request)
        new = await self._compile(request)
        if new is None and request.upstream is not None:
            # The user sees only the trigger job, which may be of another project.
            place = f"{request.project.path} has no file {request.file}"
            raise InvalidError(f"Missing CI config file: {place}")
        if new is None:
            raise InvalidError("Missing CI config file")
        if new.compiled.skipped is not None:
            raise InvalidError(_skip_message(new.compiled))
        return (await self._add(request, new.pipeline, new.jobs)).pipeline

    async def _check_starter(self, request: PipelineRequest) -> None:
        """Raise InvalidError unless the user is at least a developer and, if the ref is protected, may run its
        pipelines. A child pipeline that a trigger job starts is not checked again, because its parent was. A request
        that only claims the source `parent_pipeline`, without a trigger job, is checked."""
        if request.project.archived:
            raise InvalidError("the project is archived, so no pipeline starts in it; unarchive it first")
        if request.source == PARENT and request.upstream is not None:
            return
        level = await level_of(self._store, request.user_id, request.project, self._clock.wall()) or 0
        rules = rules_of(request.project, default_branch(self._repos, request.project))
        if level < Level.DEVELOPER or not can_run(rules, request.ref, Pusher(request.user_id, level)):
            name = request.ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
            raise InvalidError(f"You do not have sufficient permission to run a pipeline on '{name}'; ask a maintainer")
        if request.variables.keys() - {"TRIGGER_PAYLOAD"} and not can_set_variables(request.project, level):
            raise InvalidError(explain_refusal(request.project))

    async def push(self, request: PipelineRequest, *, skip_reason: str = "") -> PushOutcome:
        """Create the pipeline of a push. If the file has mistakes or the user may not start a pipeline, a failed
        pipeline without jobs is stored. No pipeline is created if the commit has no pipeline file, or its rules leave
        no jobs.

        The user's rights, checked before the push, are checked again, because a push can take long: meanwhile its
        branch may have become protected, or the user may have left the project.

        `skip_reason`: why the pipeline is stored as skipped, without jobs (`[skip ci]`); empty: it is not skipped."""
        request = with_config_path(request)
        outcome = PushOutcome(ref=request.ref, sha=request.sha, file=request.file)
        try:
            await self._check_starter(request)
            new = await self._compile(request)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a commit holds, the project's other refs still need their pipelines
            described, reason = await self._describe(request), str(error)
            if skip_reason:
                return await self._add_skipped(request, described, outcome, skip_reason)
            if isinstance(error, MistakesError):
                outcome = replace(outcome, mistakes=error.mistakes, warnings=error.warnings)
            elif not isinstance(error, CellError):
                _log.error(
                    "unexpected error in the compilation of a pipeline file; stored a failed pipeline",
                    project=request.project.path,
                    ref=request.ref,
                    commit=request.sha,
                    exc_info=error,
                )
                reason = "the cell failed to compile the pipeline file; the log of the cell has the error"
            warnings = "\n".join(map(str, outcome.warnings)) or None
            failed = replace(described, status="failed", yaml_errors=reason, yaml_warnings=warnings)
            family = await self._add(request, failed, ())
            return replace(outcome, pipeline=family.pipeline, reason=reason)
        if new is not None and skip_reason:
            return await self._add_skipped(request, new.pipeline, outcome, skip_reason)
        if new is None or new.compiled.skipped is not None:
            if request.sees is not None:
                await self._store.projects.put_seen_refs(request.project.id, dict([request.sees]))
            if new is None:
                return replace(outcome, reason=f"there is no file {request.file}")
            compiled = new.compiled
            left_out = {"left_out": compiled.left_out, "warnings": compiled.warnings}
            return replace(outcome, reason=compiled.skipped or "", **left_out)
        family = await self._add(request, new.pipeline, new.jobs)
        return replace(outcome, pipeline=family.pipeline, jobs=family.jobs, warnings=new.compiled.warnings)

    async def _add_skipped(
        self, request: PipelineRequest, pipeline: Pipeline, outcome: PushOutcome, reason: str
    ) -> PushOutcome:
        family = await self._add(request, replace(pipeline, status="skipped"), ())
        return replace(outcome, pipeline=family.pipeline, reason=reason)

    async def lint(self, request: PipelineRequest) -> Linted:
        """Compile the pipeline file of a request without creating a pipeline, and return its jobs or its mistakes.
        Raises InvalidError if there is no file."""
        request = with_config_path(request)
        linted = await self._in_thread(lint_request, request, await self._gather_shown_facts(request), self._lints)
        if linted is None:
            raise InvalidError("Missing CI config file")
        return linted

    async def read_form(self, request: PipelineRequest) -> StartForm:
        """Return what a user may set when starting the pipeline of a request: inputs and variables of its file. Raises
        InvalidError if there is no file."""
        request = with_config_path(request)
        form = await self._in_thread(read_form, request, await self._gather_shown_facts(request), self._lints)
        if form is None:
            raise InvalidError("Missing CI config file")
        return form

    async def _gather_shown_facts(self, request: PipelineRequest) -> RequestFacts:
        """Gather facts for a result that shows values of variables: without protected variables if the user is below
        the maintainer level."""
        facts = await self._gather_facts(request)
        level = await level_of(self._store, request.user_id, request.project, self._clock.wall()) or 0
        if level >= Level.MAINTAINER:
            return facts
        return replace(facts, variables=tuple(variable for variable in facts.variables if not variable.protected))

    async def _compile(self, request: PipelineRequest) -> _NewPipeline | None:
        """Compile a request's pipeline file; None if it is missing. MistakesError or InvalidError if that fails."""
        facts = await self._gather_facts(request)

        def work(*arguments: Any) -> _NewPipeline | None:
            result = compile_request(*arguments)
            if result is None:
                return None
            pipeline, compiled = with_outcome(*result), result[1]
            jobs = new_jobs(compiled.jobs, pipeline, request.project, facts.variables, self._settings.url)
            return _NewPipeline(pipeline=pipeline, compiled=compiled, jobs=tuple(jobs))

        try:
            return await self._in_thread(work, request, facts, self._compilers)
        except PipelineError as error:
            raise MistakesError(error.errors, error.warnings) from None

    async def _describe(self, request: PipelineRequest) -> Pipeline:
        """Return the pipeline of a request without jobs, to be stored as failed or skipped."""
        facts = await self._gather_facts(request)
        return await self._in_thread(
            lambda *arguments: describe_pipeline(*arguments[:3]), request, facts, self._compilers
        )

    async def _gather_facts(self, request: PipelineRequest) -> RequestFacts:
        project = request.project
        commit = await self._repos.commit(project.repo_path, request.sha)
        if commit is None:
            raise InvalidError(f"there is no commit {request.sha} in {project.path}; push it first")
        of_merge_request: Mapping[str, str] = {}
        if merge_request_iid(request.ref) is not None:
            last, _ = await self._store.pipelines.list_pipelines(
                project.id, Page(size=1), PipelineFilter(ref=request.ref)
            )
            of_merge_request = last[0].predefined if last else {}
        user = await self._store.people.load_user(request.user_id)
        is_own = user is not None and bool(user.email) and user.email.lower() == commit.author_email.lower()
        return RequestFacts(
            variables=await load_variables(self._store, project),
            of_user=of_user(user) if user else {},
            of_commit={
                **of_commit(
                    message=commit.message,
                    author=f"{commit.author_name} <{commit.author_email}>",
                    timestamp=rfc3339(commit.committed_at),
                ),
                "CI_COMMIT_USER_LOGIN": user.username if user and is_own else "",
                **await self._release(request),
            },
            of_merge_request=of_merge_request,
            default_branch=default_branch(self._repos, project),
            url=self._settings.url,
            registry=self._settings.registry_host,
            image_proxy=self._settings.image_proxy,
            pages_domain=self._settings.pages_domain,
            needs_limit=self._settings.needs_limit,
            now=self._clock.now(),
        )

    async def _release(self, request: PipelineRequest) -> dict[str, str]:
        """Return CI_RELEASE_DESCRIPTION for the pipeline of a tag that has a release."""
        tag = request.ref.removeprefix("refs/tags/")
        if tag == request.ref:
            return {}
        releases = await self._store.schedules.list_releases(request.project.id)
        release = next((each for each in releases if each.tag == tag), None)
        return {"CI_RELEASE_DESCRIPTION": release.description[:MAX_RELEASE_DESCRIPTION]} if release else {}

    async def _ancestors(self, pipeline: Pipeline) -> list[Pipeline]:
        """Return the parent of a child pipeline, the parent of that, and so on (at most ten); else an empty list."""
        ancestors: list[Pipeline] = []
        while pipeline.is_child and pipeline.upstream_pipeline_id is not None and len(ancestors) < 10:
            parent = await self._store.pipelines.load_pipeline(pipeline.upstream_pipeline_id)
            if parent is None:
                break
            ancestors.append(parent)
            pipeline = parent
        return ancestors

    async def _in_thread(
        self,
        work: Callable[[PipelineRequest, RequestFacts, Reader, Outside], _T],
        request: PipelineRequest,
        facts: RequestFacts,
        compilers: Compilers,
    ) -> _T:
        remote_seconds = 0.0

        async def fetch(files: RemoteFiles, url: str, cache_seconds: int) -> bytes | SourceProblem:
            nonlocal remote_seconds
            if remote_seconds >= REMOTE_SECONDS:
                reason = f"the remote files before it took {REMOTE_SECONDS:g} s already"
                return SourceProblem(reason=reason, suggestion="try again, or include from a project of the cell")
            began = self._clock.monotonic()
            try:
                return await files.fetch(url, cache_seconds=cache_seconds)
            finally:
                remote_seconds += self._clock.monotonic() - began

        def run(ask: Ask) -> _T:
            def fetch_template(url: str) -> str | SourceProblem:
                content = ask(fetch(self._template_server, url, CACHE_SECONDS))
                return content if isinstance(content, SourceProblem) else decode(content)

            outside = Outside(
                find_project=lambda path: ask(
                    find_reachable_project(
                        self._store, request.user_id, request.project, path, Level.REPORTER, self._clock.wall()
                    )
                ),
                fetch=lambda url, cache_seconds: ask(fetch(self._remote, url, cache_seconds)),
                find_template=lambda name: find_template(
                    name, self._settings.templates, fetch_template, hint=_TEMPLATE_HINT
                ),
                host=urlsplit(self._settings.url).netloc,
                other_hosts=self._settings.component_hosts,
            )
            with self._repos.open_reader() as reader:
                return work(request, facts, reader, outside)

        return await compilers.run(run)

    async def _add(self, request: PipelineRequest, new: Pipeline, jobs: Sequence[NewJob]) -> Family:
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
        if family.jobs and request.project.auto_cancel_pending_pipelines == "enabled":
            await self._cancel_redundant(family.pipeline)
        return family

    async def _cancel_redundant(self, newest: Pipeline) -> None:
        """Cancel the older pipelines that the new one replaces (`workflow:auto_cancel`). A failure is only logged."""
        try:
            for old in await self._store.pipelines.list_open_pipelines(newest.project_id, newest.ref):
                if redundant.is_replaced(old, newest):
                    applied = await self._changes.change(old.id, partial(redundant.cancel, now=self._clock.now()))
                    if applied.jobs:
                        _log.info("canceled pipeline: a newer one replaces it", pipeline=old.id, by=newest.id)
        except CellError as error:
            _log.warning(
                "cannot cancel the older pipelines that a new one replaces; they continue",
                pipeline=newest.id,
                error=str(error),
            )

    async def keep_commit(self, project: Project, pipeline: Pipeline) -> None:
        """Create `refs/pipelines/<id>`, so that runners can fetch the commit even if its branch is deleted or
        force-pushed. Also called before a runner gets a job, in case the process that stored the pipeline died before
        it created the ref. A failure of git is only logged."""
        if pipeline.id in self._kept:
            return
        ref = f"refs/pipelines/{pipeline.id}"
        if not self._repos.has_ref_file(project.repo_path, ref):
            try:
                await self._repos.put_ref(project.repo_path, ref, pipeline.sha)
            except GitError as error:
                _log.warning(
                    "cannot create the git ref of a pipeline's commit; trying again when a runner takes a job of it",
                    pipeline=pipeline.id,
                    error=str(error),
                )
                return
        if len(self._kept) >= REMEMBERED_PIPELINES:
            self._kept.clear()
        self._kept.add(pipeline.id)


def _skip_message(compiled: Compiled) -> str:
    """Return the message that no pipeline was created: GitLab's sentence, which clients know, then the reason."""
    if compiled.left_out:
        words = "Pipeline will not run for the selected trigger. The rules configuration prevented any jobs from being "
        return f"{words}added to the pipeline: {compiled.skipped}."
    return f"Pipeline filtered out by workflow rules: {compiled.skipped}."
