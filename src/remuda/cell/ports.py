"""What the cell's decisions need from outside: a store, traces, blobs. Each has one contract suite in tests/contract.

The store's writes are transactions. Where a change needs a decision, the caller passes a pure function and the store
calls it inside the transaction with the current values; the function may be called more than once and must have no
effect but its result. That is how a decision and its consequences are stored together or not at all.
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import BinaryIO, Protocol

import msgspec

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
    Release,
    Runner,
    RunnerManager,
    Schedule,
    StepResult,
    TriggerToken,
    UserToken,
)
from remuda.model.job import JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.pipeline import JobSpec


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A further try: a new job with the spec of an old one, which is marked as retried."""

    of: JobId
    job: Job
    """The new job; its `id` is 0 and is set by the store."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision about a pipeline comes to."""

    jobs: tuple[Job, ...] = ()
    """Jobs that changed, whole."""
    retries: tuple[Retry, ...] = ()
    pipeline: Pipeline | None = None


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What was stored."""

    jobs: tuple[Job, ...] = ()
    """Changed and new jobs, with their ids."""
    pipeline: Pipeline | None = None


class Store(Protocol):
    """Everything that must survive the process, except traces and blobs."""

    async def close(self) -> None: ...

    async def writable(self) -> None:
        """Return when a write transaction can be committed; raise StoreError when not (full disk, read-only)."""
        ...

    # --- keys and people
    async def signing_keys(self) -> Mapping[str, bytes]: ...
    async def add_signing_key(self, kid: str, pem: bytes) -> None: ...
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
    async def projects(self, page: Page, *, search: str = "") -> tuple[Sequence[Project], int]:
        """A page, newest first, and the total."""
        ...

    async def variables(self, project_id: ProjectId) -> Sequence[ProjectVariable]: ...
    async def put_variable(self, variable: ProjectVariable, *, replace: bool) -> bool:
        """False when it exists and `replace` is off, or is missing and `replace` is on."""
        ...

    async def remove_variable(self, project_id: ProjectId, key: str) -> bool: ...

    # --- pipelines
    async def seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        """Full ref name to the commit for which the cell has already acted."""
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
    ) -> Family:
        """Store a pipeline and all its jobs, `created`, and what it acts on, in one transaction.

        `sees` is the ref and commit that count as acted on, `schedule` the schedule with its next time; what is kept of
        it gets that and the pipeline's id (`remuda.cell.core.schedules.with_pipeline`). When there is a pipeline of
        this `upstream_job_id` already, that one comes back and nothing is stored. Ids and the pipeline's iid come from
        the store. Jobs whose turn has come are enqueued in the same transaction (`lifecycle.begin`).
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

    # --- jobs
    async def job(self, job_id: JobId) -> Job | None: ...
    async def job_spec(self, job_id: JobId) -> JobSpec | None: ...
    async def jobs(
        self,
        page: Page,
        *,
        project_id: ProjectId | None = None,
        pipeline_id: PipelineId | None = None,
        states: Sequence[str] = (),
        with_retried: bool = False,
        is_trigger: bool | None = None,
    ) -> tuple[Sequence[Job], int]:
        """A page, newest first, and the total. `is_trigger` asks for trigger jobs alone, or for all others."""
        ...

    async def change_job(self, job_id: JobId, decide: Callable[[Job], Job | None]) -> Job | None:
        """Change one job by itself (lease, acknowledgement): the result of `decide`, None when it declined."""
        ...

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Change jobs of a pipeline together."""
        ...

    async def newest_success(self, project_id: ProjectId, ref: str, name: str) -> Job | None:
        """The newest job of this name that succeeded on a ref."""
        ...

    async def jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        """All jobs in one of these states, oldest first."""
        ...

    async def resource_holder(self, project_id: ProjectId, group: str) -> Job | None:
        """The job that has a resource group, in one of the occupying states."""
        ...

    async def leased_by_request(self, runner_id: RunnerId, request_id: str) -> Job | None:
        """The job that this very call got before, while it is still leased."""
        ...

    async def count_jobs(self) -> Mapping[str, int]:
        """Jobs per state."""
        ...

    async def count_pipelines(self) -> Mapping[str, int]:
        """Pipelines per status."""
        ...

    # --- runners
    async def add_runner(self, runner: Runner) -> Runner: ...
    async def runner(self, runner_id: RunnerId) -> Runner | None: ...
    async def runner_by_token(self, token_hash: str) -> Runner | None: ...
    async def runners(self, page: Page) -> tuple[Sequence[Runner], int]: ...
    async def put_runner(self, runner: Runner) -> None: ...
    async def remove_runner(self, runner_id: RunnerId) -> bool: ...
    async def put_manager(self, manager: RunnerManager) -> None: ...
    async def manager(self, runner_id: RunnerId, system_id: str) -> RunnerManager | None: ...
    async def managers(self, runner_id: RunnerId) -> Sequence[RunnerManager]: ...
    async def all_managers(self) -> Sequence[RunnerManager]:
        """Of all runners, by runner and system id."""
        ...

    async def remove_manager(self, runner_id: RunnerId, system_id: str) -> bool: ...

    # --- results and artifacts
    async def add_results(self, job_id: JobId, results: Sequence[StepResult]) -> int:
        """Store those that follow without a gap, ignore those already there; the next sequence number wanted."""
        ...

    async def results(self, job_id: JobId, *, after: int = 0, limit: int | None = None) -> Sequence[StepResult]:
        """Those with numbers above `after`, in order, so many at most."""
        ...

    async def put_artifact(self, artifact: Artifact) -> Artifact:
        """Store it; when the job has one of this type, that one is returned and nothing changes."""
        ...

    async def artifacts(self, job_id: JobId) -> Sequence[Artifact]: ...

    # --- what starts pipelines, and what they leave
    async def add_schedule(self, schedule: Schedule) -> Schedule:
        """Store with a new id."""
        ...

    async def schedule(self, schedule_id: int) -> Schedule | None: ...
    async def schedules(self, project_id: ProjectId) -> Sequence[Schedule]: ...
    async def change_schedule(
        self, schedule_id: int, decide: Callable[[Schedule], Schedule | None]
    ) -> Schedule | None: ...
    async def remove_schedule(self, schedule_id: int) -> bool: ...
    async def due_schedules(self, now: float) -> Sequence[Schedule]:
        """The active ones whose time has come, the longest due first."""
        ...

    async def add_trigger(self, trigger: TriggerToken) -> TriggerToken:
        """Store with a new id."""
        ...

    async def trigger_by_token(self, token_hash: str) -> TriggerToken | None: ...
    async def triggers(self, project_id: ProjectId) -> Sequence[TriggerToken]: ...
    async def put_trigger(self, trigger: TriggerToken) -> None: ...
    async def remove_trigger(self, trigger_id: int) -> bool: ...
    async def put_release(self, release: Release, *, replace: bool) -> bool:
        """False when it exists and `replace` is off, or is missing and `replace` is on."""
        ...

    async def releases(self, project_id: ProjectId) -> Sequence[Release]:
        """Newest first."""
        ...

    async def remove_release(self, project_id: ProjectId, tag: str) -> bool: ...


class Traces(Protocol):
    """Growing logs, one per job, addressed by exact byte offsets."""

    async def size(self, job_id: JobId) -> int: ...

    async def append(self, job_id: JobId, start: int, data: bytes) -> "Appended":
        """Add bytes at `start`. Bytes that are there already and equal are accepted; a gap or other bytes are not."""
        ...

    def read(self, job_id: JobId, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes from `start` on, in pieces."""
        ...

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        """The job is over: make the bytes durable, archive them; size and checksum `crc32:xxxxxxxx`. Repeatable.

        A sealed trace does not grow: only what it has already is taken.
        """
        ...

    async def reopen(self, job_id: JobId) -> None:
        """The job goes on after all: let a sealed trace grow again. One that is just being sealed stays so."""
        ...

    async def remove(self, job_id: JobId) -> None: ...


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an append: whether it was taken, and the size now."""

    taken: bool
    size: int


class Blobs(Protocol):
    """Large immutable things by key."""

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        """Stream in; size and SHA-256. TooLargeError beyond the limit, and nothing is left behind."""
        ...

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str) -> AsyncIterator[bytes]: ...

    def opened(self, key: str) -> BinaryIO:
        """For reading at any place, in a thread; the caller closes it. NotFoundError when there is none."""
        ...

    async def remove(self, key: str) -> None: ...
