"""The store: everything that must survive the process, except traces and blobs."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Protocol

from remuda.cell.operations.audit import ALL_EVENTS, AuditEvent, AuditFilter
from remuda.cell.store.ports.people import PeopleStore
from remuda.cell.store.ports.starts import StartsStore
from remuda.cell.values import (
    ALL_PIPELINES,
    Artifact,
    Family,
    Job,
    NewJob,
    Page,
    Pipeline,
    PipelineFilter,
    Project,
    ProjectVariable,
    Runner,
    RunnerManager,
    Schedule,
    StepResult,
    UserToken,
)
from remuda.cell.values.changes import Applied, Belongings, Changes, Leaves
from remuda.cell.values.people import ALL_PROJECTS, ALL_RUNNERS, ProjectFilter, RunnerFilter
from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.pipeline import JobSpec


class Store(PeopleStore, StartsStore, Protocol):
    """Everything that must survive the process, except traces and blobs."""

    async def close(self) -> None: ...

    async def warm(self) -> None:
        """Do what the first calls would otherwise wait for, such as connecting; nothing is stored."""
        ...

    async def writable(self) -> None:
        """Return when a write transaction can be committed; raise StoreError when not (full disk, read-only)."""
        ...

    def changes(self) -> AsyncGenerator[Collection[JobId], None]:
        """Jobs that other processes of this cell stored, where there are others: only a hint, some are never told.

        None at all: some may have been missed just now. It ends at once where there is one process only.
        """
        ...

    # --- keys and people
    async def signing_keys(self) -> Mapping[str, bytes]: ...
    async def add_signing_key(self, kid: str, pem: bytes) -> None: ...
    async def remove_signing_key(self, kid: str) -> None: ...
    async def setting(self, name: str) -> str | None: ...
    async def put_setting(self, name: str, value: str) -> None: ...
    async def settings(self, names: Collection[str]) -> Mapping[str, str]:
        """Those of these that are there."""
        ...

    async def change_setting(self, name: str, decide: Callable[[str | None], str | None]) -> str | None:
        """Change one by what it is: the result of `decide`, None when it declined."""
        ...

    async def user_token(self, token_hash: str) -> UserToken | None: ...
    async def user_tokens(self) -> Sequence[UserToken]: ...
    async def put_user_token(self, token: UserToken) -> None: ...

    # --- projects
    async def add_project(self, project: Project) -> Project:
        """Store with a new id (given one is ignored); ConflictError when the path is taken."""
        ...

    async def project(self, project_id: ProjectId) -> Project | None: ...
    async def project_by_path(self, path: str) -> Project | None: ...
    async def projects(self, page: Page, wanted: ProjectFilter = ALL_PROJECTS) -> tuple[Sequence[Project], int]:
        """A page, newest first, and the total."""
        ...

    async def variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]:
        """The project's own, by key and environment scope."""
        ...

    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        """False when it exists and `replace` is off, or is missing and `replace` is on."""
        ...

    async def remove_variable(
        self, project_id: ProjectId, key: str, environment_scope: str = "*", *, group_id: int = 0
    ) -> bool: ...

    # --- pipelines
    async def seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        """Full ref name to the commit for which the cell has already acted."""
        ...

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        """Whether the cell has acted on a full ref, and has not found it deleted since."""
        ...

    async def see_refs(self, project_id: ProjectId, refs: Mapping[str, str | None]) -> None:
        """Remember commits without a pipeline (None forgets a deleted ref)."""
        ...

    async def add_pipeline(
        self,
        pipeline: Pipeline,
        jobs: Sequence[NewJob],
        *,
        now: float,
        sees: tuple[str, str] | None = None,
        schedule: Schedule | None = None,
        due_at: float | None = None,
    ) -> Family:
        """Store a pipeline and all its jobs, `created`, and what it acts on, in one transaction.

        `sees` is the ref and commit that count as acted on, `schedule` the schedule with its next time; what is kept of
        it gets that and the pipeline's id (`remuda.cell.core.pipelines.schedules.with_pipeline`). With `due_at` that is
        the time for which the schedule runs: ConflictError when somebody else has run it or given it another time.

        When there is a pipeline of this `upstream_job_id` already, that one comes back and nothing is stored. Ids and
        the pipeline's iid come from the store. Jobs whose turn has come are enqueued in the same transaction
        (`lifecycle.begin`).
        """
        ...

    async def pipeline(self, pipeline_id: PipelineId) -> Pipeline | None: ...
    async def pipelines(
        self, project_id: ProjectId, page: Page, wanted: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        """A page and the total."""
        ...

    async def open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        """All pipelines of a ref that are not over, oldest first."""
        ...

    async def downstream(self, upstream_job_id: JobId) -> Pipeline | None:
        """The pipeline that a trigger job started."""
        ...

    async def family(self, pipeline_id: PipelineId) -> Family | None: ...
    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        """Take it away with all tries of its jobs, their results and the rows of their artifacts; False: none there."""
        ...

    # --- jobs
    async def job(self, job_id: JobId) -> Job | None: ...
    async def some_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        """Those of these that there are, oldest first."""
        ...

    async def job_spec(self, job_id: JobId) -> JobSpec | None: ...
    async def belongings(self, job: Job, settings: Collection[str] = ()) -> Belongings:
        """What a payload is made of, with these settings, at one go."""
        ...

    async def jobs(
        self,
        page: Page,
        *,
        project_id: ProjectId | None = None,
        pipeline_id: PipelineId | None = None,
        states: Sequence[str] = (),
        with_retried: bool = False,
        is_trigger: bool | None = None,
        runner_id: RunnerId | None = None,
        project_ids: Collection[ProjectId] | None = None,
    ) -> tuple[Sequence[Job], int]:
        """A page, newest first, and the total. `is_trigger` asks for trigger jobs alone, or for all others;
        `project_ids` for those of these projects."""
        ...

    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        """Change one job by itself (lease, acknowledgement): the result of `decide`, None when it declined.

        `known` is the job as the caller read it a moment ago: where it still is like that it need not be read again.
        """
        ...

    async def end_beside(self, known: Job, ended: Job) -> bool:
        """Store the end of a job from which nothing follows (`lifecycle.finish_alone`): whether it is.

        It is not when the job is not as it is `known` any more, or when no job of its pipeline with a higher id is
        pending, leased or running: then the pipeline may be over, which is a decision about all of it. Of ends at the
        same time each is seen by the decision about the pipeline that comes after it, and there is one.
        """
        ...

    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> Belongings | None:
        """Store a hand-out: the belongings of the job, None when it is not stored.

        It is not when the job or the runner is not as it is known here any more, or when the very call that it is for
        has another job (`leased_by_request`).
        """
        ...

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Change jobs of a pipeline together."""
        ...

    async def newest_success(
        self, project_id: ProjectId, ref: str, name: str, *, tag: bool | None = None
    ) -> Job | None:
        """The newest job of this name that succeeded on a ref; `tag` says which of a tag and a branch of that name."""
        ...

    async def jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        """All jobs in one of these states, oldest first."""
        ...

    async def first_of_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Job | None:
        """The oldest job with a resource group that is in one of these states."""
        ...

    async def leased_by_request(self, runner_id: RunnerId, request_id: str) -> Job | None:
        """The job that this very call got before, while it is still leased."""
        ...

    async def coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        """Jobs in these states of pipelines that are not over, oldest first.

        Of pipelines that wait for a person only those in which something has happened since `held_since`: others pile
        up for as long as the cell exists.
        """
        ...

    async def count_jobs(self) -> Mapping[str, int]:
        """Jobs per state, of those that are not over."""
        ...

    async def count_pipelines(self) -> Mapping[str, int]:
        """Pipelines per status, of those that are not over."""
        ...

    # --- runners
    async def add_runner(self, runner: Runner) -> Runner: ...
    async def runner(self, runner_id: RunnerId) -> Runner | None: ...
    async def runner_by_token(self, token_hash: str) -> Runner | None: ...
    async def runners(self, page: Page, wanted: RunnerFilter = ALL_RUNNERS) -> tuple[Sequence[Runner], int]: ...
    async def put_runner(self, runner: Runner) -> None: ...
    async def remove_runner(self, runner_id: RunnerId) -> bool: ...
    async def put_manager(self, manager: RunnerManager) -> None: ...
    async def manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None: ...
    async def managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]: ...
    async def all_managers(self) -> Sequence[RunnerManager]:
        """Of all runners, by runner and system id."""
        ...

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool: ...

    # --- the audit log
    async def add_audit_event(self, event: AuditEvent) -> AuditEvent:
        """Store with a new id."""
        ...

    async def audit_event(self, event_id: int) -> AuditEvent | None: ...
    async def audit_events(self, page: Page, wanted: AuditFilter = ALL_EVENTS) -> tuple[Sequence[AuditEvent], int]:
        """A page, newest first, and the total."""
        ...

    async def remove_audit_events(self, before: float, *, limit: int) -> int:
        """Remove those that are older, so many at most; how many that were."""
        ...

    # --- results and artifacts
    async def add_results(self, job_id: JobId, results: Sequence[StepResult], *, limit_bytes: int) -> int:
        """Store those that follow without a gap, as far as `core.results` lets them; the next sequence number wanted.

        Those already there are ignored. `limit_bytes` is for all of the job.
        """
        ...

    async def results(self, job_id: JobId, *, after: int = 0, limit: int | None = None) -> Sequence[StepResult]:
        """Those with numbers above `after`, in order, so many at most."""
        ...

    async def put_artifact(self, artifact: Artifact) -> Artifact:
        """Store it; when the job has one of this type, that one is returned and nothing changes."""
        ...

    async def artifacts(self, job_id: JobId) -> Sequence[Artifact]: ...
    async def change_artifacts(
        self, job_id: JobId, decide: Callable[[Job, Sequence[Artifact]], Leaves | None]
    ) -> Sequence[Artifact]:
        """Change a job and its artifacts together: those that are gone; none when `decide` declined."""
        ...

    async def due_artifacts(self, now: float, *, limit: int) -> Sequence[Artifact]:
        """Those whose `look_at` has come, the longest due first."""
        ...
