"""What the cell's decisions need from outside: a store, traces, blobs. Each has one contract suite in tests/contract.

The store's writes are transactions. Where a change needs a decision, the caller passes a pure function and the store
calls it inside the transaction with the current values; the function may be called more than once and must have no
effect but its result. That is how a decision and its consequences are stored together or not at all.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from remuda.cell.audit import ALL_EVENTS, AuditEvent, AuditFilter
from remuda.cell.people import (
    ALL_PROJECTS,
    ALL_RUNNERS,
    Member,
    Namespace,
    NamespaceFilter,
    Organization,
    ProjectFilter,
    RunnerFilter,
    User,
)
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
from remuda.model.runner import Pool
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


class Leaves(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its artifacts after a decision about them."""

    job: Job
    artifacts: tuple[Artifact, ...]
    """All that it still has, whole."""


class Store(Protocol):
    """Everything that must survive the process, except traces and blobs."""

    async def close(self) -> None: ...

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
        it gets that and the pipeline's id (`remuda.cell.core.schedules.with_pipeline`). With `due_at` that is the time
        for which the schedule runs: ConflictError when somebody else has run it or given it another time.

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
    async def belongings(
        self, job: Job
    ) -> tuple[JobSpec | None, Pipeline | None, Project | None, Sequence[ProjectVariable]]:
        """What a payload is made of, at one go: the job's spec, pipeline and project, and the variables of the cell, of
        the groups that the job names, and of the project, in the order of `shared_variables` and `variables`."""
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

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        """Change jobs of a pipeline together."""
        ...

    async def newest_success(self, project_id: ProjectId, ref: str, name: str) -> Job | None:
        """The newest job of this name that succeeded on a ref."""
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

    # --- organizations, groups, people. A new store has FIRST_ORGANIZATION, FIRST_NAMESPACE and FIRST_USER of
    # `remuda.cell.people`. What is added gets a new id, the one it comes with is ignored; an id that is taken is
    # passed over. Paths and names are unique without regard to case: ConflictError when one is taken.
    async def add_organization(self, organization: Organization) -> Organization: ...
    async def organization(self, organization_id: int) -> Organization | None: ...
    async def organizations(self) -> Sequence[Organization]:
        """All, by their ids."""
        ...

    async def add_namespace(self, namespace: Namespace, *, first: Member | None = None) -> Namespace:
        """With its first member, in one transaction. ConflictError when a namespace or a project has the path."""
        ...

    async def namespace(self, namespace_id: int) -> Namespace | None: ...
    async def namespace_by_path(self, path: str) -> Namespace | None: ...
    async def namespaces(self, page: Page, wanted: NamespaceFilter) -> tuple[Sequence[Namespace], int]:
        """A page, by path, and the total."""
        ...

    async def put_namespace(self, namespace: Namespace) -> None:
        """Change it; its path stays as it is. NotFoundError when there is none."""
        ...

    async def remove_namespace(self, namespace_id: int) -> bool:
        """With its members and variables. ConflictError while a project or a namespace is in it."""
        ...

    async def add_user(self, user: User, namespace: Namespace) -> User:
        """A user with a namespace of their own, in one transaction; each gets the other's id."""
        ...

    async def user(self, user_id: int) -> User | None: ...
    async def user_by_name(self, username: str) -> User | None: ...
    async def users(
        self, page: Page, *, search: str = "", organization_id: int | None = None
    ) -> tuple[Sequence[User], int]:
        """A page, newest first, and the total; `search` is part of a name, or a whole address of mail."""
        ...

    async def put_user(self, user: User) -> None:
        """Change it; the username stays as it is. NotFoundError when there is none."""
        ...

    async def put_member(self, member: Member) -> None: ...
    async def remove_member(self, owner: Pool, user_id: int) -> bool: ...
    async def members(self, owner: Pool) -> Sequence[Member]:
        """By user."""
        ...

    async def memberships(self, user_id: int) -> Sequence[Member]:
        """Of a user, by owner."""
        ...

    async def add_user_token(self, token: UserToken, *, instead_of: int | None = None) -> UserToken:
        """Store a token; the one with the id `instead_of` is revoked in the same transaction.

        ConflictError when that one is revoked already, or there is one with this hash.
        """
        ...

    async def user_token_by_id(self, token_id: int) -> UserToken | None: ...
    async def user_tokens_of(self, user_id: int | None) -> Sequence[UserToken]:
        """A user's, or all (None), by id."""
        ...

    async def change_user_token(
        self, token_id: int, decide: Callable[[UserToken], UserToken | None]
    ) -> UserToken | None: ...

    async def change_runner(self, runner_id: RunnerId, decide: Callable[[Runner], Runner | None]) -> Runner | None:
        """The result of `decide`, None when it declined or there is no such runner."""
        ...

    async def change_project(
        self, project_id: ProjectId, decide: Callable[[Project], Project | None]
    ) -> Project | None:
        """ConflictError when its new path is taken."""
        ...

    async def shared_variables(self, group_ids: Sequence[int]) -> Sequence[ProjectVariable]:
        """The variables of all of the cell and those of these groups, by group, key and environment scope."""
        ...

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
    async def change_artifacts(
        self, job_id: JobId, decide: Callable[[Job, Sequence[Artifact]], Leaves | None]
    ) -> Sequence[Artifact]:
        """Change a job and its artifacts together: those that are gone; none when `decide` declined."""
        ...

    async def due_artifacts(self, now: float, *, limit: int) -> Sequence[Artifact]:
        """Those whose `look_at` has come, the longest due first."""
        ...

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

    async def compare(self, job_id: JobId, start: int, data: bytes) -> "Appended":
        """What an append comes to when the job is over: only what is there already is taken, and nothing written."""
        ...

    def read(self, job_id: JobId, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes from `start` on, in pieces."""
        ...

    async def seal(self, job_id: JobId) -> tuple[int, str]:
        """The job is over: make the bytes durable; size and checksum `crc32:xxxxxxxx`. Repeatable.

        A sealed trace does not grow: only what it has already is taken.
        """
        ...

    async def reopen(self, job_id: JobId) -> None:
        """The job goes on after all: let a sealed trace grow again. One that is just being sealed stays so."""
        ...

    async def unarchived(self) -> Sequence[JobId]:
        """The jobs whose traces are not in the archive (yet)."""
        ...

    async def archive(self, job_id: JobId) -> None:
        """Move a sealed trace to where it stays; it is not opened again. Repeatable; one that is not sealed stays."""
        ...

    async def remove(self, job_id: JobId) -> None: ...


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an append: whether it was taken, and the size now."""

    taken: bool
    size: int


class StoredBlob(msgspec.Struct, frozen=True, kw_only=True):
    """A blob as a list tells it."""

    key: str
    modified_at: float


class Blobs(Protocol):
    """Large immutable things by key."""

    async def close(self) -> None: ...

    async def put(self, key: str, data: AsyncIterator[bytes], *, limit_bytes: int) -> tuple[int, str]:
        """Stream in; size and SHA-256. TooLargeError beyond the limit, and nothing is left behind."""
        ...

    async def take(self, key: str, file: Path) -> None:
        """Keep a local file, which is on disk to stay, under this key; afterwards it is here and not there."""
        ...

    async def size(self, key: str) -> int | None: ...

    def read(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes from `start` on, in pieces; NotFoundError when there is none."""
        ...

    def opened(self, key: str) -> BinaryIO:
        """For reading at any place. This call and all reading block: in a thread. The caller closes it.

        NotFoundError when there is none.
        """
        ...

    async def remove(self, key: str) -> None: ...

    def listed(self, prefix: str) -> AsyncIterator[StoredBlob]:
        """All blobs in a folder of keys and below it, in any order."""
        ...
