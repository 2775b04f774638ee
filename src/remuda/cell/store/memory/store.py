"""The store in memory: the public twin of the SQLite store, for unit tests and short-lived cells.

It decides nothing. No method awaits anything, so each is one transaction as far as the event loop can see; a method
that raises has changed nothing, because every check stands before the first change.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Self, TypeVar

from msgspec.structs import replace

from remuda.cell.core.jobs import lifecycle
from remuda.cell.core.jobs.result_limits import select_results
from remuda.cell.core.pipelines.schedules import with_pipeline
from remuda.cell.errors import ConflictError, NotFoundError
from remuda.cell.store.memory.audit import MemoryAudit
from remuda.cell.store.memory.people import cut, page_of, removed
from remuda.cell.store.ports import Applied, Belongings, Changes, Leaves
from remuda.cell.values import (
    ALL_PIPELINES,
    UNDER_WAY,
    Artifact,
    Family,
    Job,
    NewJob,
    Page,
    Pipeline,
    PipelineFilter,
    Release,
    Runner,
    RunnerManager,
    Schedule,
    StepResult,
    TriggerToken,
)
from remuda.model.job import FINAL, OCCUPYING, JobId, JobState, PipelineId, ProjectId, RunnerId
from remuda.model.progress import OVER
from remuda.pipeline import JobSpec

T = TypeVar("T")


class MemoryStore(MemoryAudit):
    """A store that is gone with its process."""

    @property
    def jobs(self) -> Self:
        return self

    @property
    def pipelines(self) -> Self:
        return self

    @property
    def projects(self) -> Self:
        return self

    @property
    def people(self) -> Self:
        return self

    @property
    def runners(self) -> Self:
        return self

    @property
    def schedules(self) -> Self:
        return self

    @property
    def settings(self) -> Self:
        return self

    def __init__(self, cell_id: int = 1) -> None:
        super().__init__(cell_id)
        self._keys: dict[str, bytes] = {}
        self._settings: dict[str, str] = {}
        self._seen: dict[tuple[ProjectId, str], str] = {}
        self._pipelines: dict[PipelineId, Pipeline] = {}
        self._jobs: dict[JobId, Job] = {}
        self._jobs_of: dict[PipelineId, dict[JobId, None]] = {}
        self._specs: dict[JobId, JobSpec] = {}
        self._results: dict[JobId, list[StepResult]] = {}
        self._artifacts: dict[tuple[JobId, str], Artifact] = {}
        self._schedules: dict[int, Schedule] = {}
        self._triggers: dict[int, TriggerToken] = {}
        self._releases: dict[tuple[ProjectId, str], Release] = {}

    async def close(self) -> None:
        return

    async def warm_up(self) -> None:
        return

    async def check_writable(self) -> None:
        return

    async def watch_changes(self) -> AsyncGenerator[Collection[JobId], None]:
        told_by_others: Sequence[Collection[JobId]] = ()
        for told in told_by_others:
            yield told

    # keys and people

    async def load_signing_keys(self) -> Mapping[str, bytes]:
        return dict(self._keys)

    async def add_signing_key(self, kid: str, pem: bytes) -> None:
        if kid in self._keys:
            raise ConflictError(f"there is a signing key {kid} already")
        self._keys[kid] = pem

    async def remove_signing_key(self, kid: str) -> None:
        self._keys.pop(kid, None)

    async def load_setting(self, name: str) -> str | None:
        return self._settings.get(name)

    async def put_setting(self, name: str, value: str) -> None:
        self._settings[name] = value

    async def load_settings(self, names: Collection[str]) -> Mapping[str, str]:
        return {name: self._settings[name] for name in names if name in self._settings}

    async def change_setting(self, name: str, decide: Callable[[str | None], str | None]) -> str | None:
        changed = decide(self._settings.get(name))
        if changed is not None:
            self._settings[name] = changed
        return changed

    # pipelines

    async def load_seen_refs(self, project_id: ProjectId) -> Mapping[str, str]:
        return {ref: sha for (owner, ref), sha in self._seen.items() if owner == project_id}

    async def is_ref_seen(self, project_id: ProjectId, ref: str) -> bool:
        return (project_id, ref) in self._seen

    async def put_seen_refs(self, project_id: ProjectId, refs: Mapping[str, str | None]) -> None:
        for ref, sha in refs.items():
            if sha is None:
                self._seen.pop((project_id, ref), None)
            else:
                self._seen[project_id, ref] = sha

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
        if pipeline.project_id not in self._projects:
            raise NotFoundError(f"there is no project {pipeline.project_id}")
        if pipeline.upstream_job_id is not None and (there := await self.find_downstream(pipeline.upstream_job_id)):
            return self._family(there)
        due = self._schedules.get(schedule.id) if schedule else None
        if schedule and due:
            with_pipeline(due, schedule, pipeline.id, due_at=due_at)
        iids = (old.iid for old in self._pipelines.values() if old.project_id == pipeline.project_id)
        pipeline = replace(pipeline, id=PipelineId(self._draw("pipelines")), iid=max(iids, default=0) + 1)
        self._pipelines[pipeline.id] = pipeline
        self._jobs_of[pipeline.id] = {}
        for new in jobs:
            job = lifecycle.new_job(new, pipeline, JobId(self._draw("jobs")), now)
            self._put_job(job, new.spec)
        self._apply(lifecycle.begin(self._family(pipeline), now))
        if sees:
            self._seen[pipeline.project_id, sees[0]] = sees[1]
        if schedule and (kept := self._schedules.get(schedule.id)):
            self._schedules[schedule.id] = with_pipeline(kept, schedule, pipeline.id)
        return self._family(self._pipelines[pipeline.id])

    async def load_pipeline(self, pipeline_id: PipelineId) -> Pipeline | None:
        return self._pipelines.get(pipeline_id)

    async def list_pipelines(
        self, project_id: ProjectId, page: Page, wanted: PipelineFilter = ALL_PIPELINES
    ) -> tuple[Sequence[Pipeline], int]:
        found = [one for one in self._pipelines.values() if one.project_id == project_id and wanted.fits(one)]
        ordered = sorted(found, key=lambda one: (getattr(one, wanted.order_by), one.id), reverse=not wanted.ascending)
        return cut(ordered, page)

    async def list_open_pipelines(self, project_id: ProjectId, ref: str) -> Sequence[Pipeline]:
        return [
            pipeline
            for pipeline in self._pipelines.values()
            if (pipeline.project_id, pipeline.ref) == (project_id, ref) and pipeline.status not in OVER
        ]

    async def find_downstream(self, upstream_job_id: JobId) -> Pipeline | None:
        found = (pipeline for pipeline in self._pipelines.values() if pipeline.upstream_job_id == upstream_job_id)
        return next(found, None)

    async def load_family(self, pipeline_id: PipelineId) -> Family | None:
        pipeline = self._pipelines.get(pipeline_id)
        return self._family(pipeline) if pipeline else None

    async def remove_pipeline(self, pipeline_id: PipelineId) -> bool:
        for job_id in self._jobs_of.pop(pipeline_id, {}):
            for values in (self._jobs, self._specs, self._results):
                values.pop(job_id, None)
            for at in [at for at in self._artifacts if at[0] == job_id]:
                del self._artifacts[at]
        return removed(self._pipelines, pipeline_id)

    def _family(self, pipeline: Pipeline) -> Family:
        jobs = (self._jobs[job_id] for job_id in self._jobs_of[pipeline.id])
        newest = tuple(job for job in jobs if not job.retried)
        return Family(pipeline=pipeline, jobs=newest, taken=self._taken(pipeline, newest))

    def _taken(self, pipeline: Pipeline, jobs: Sequence[Job]) -> frozenset[str]:
        wanted = {job.resource_group for job in jobs if job.resource_group}
        return frozenset(
            job.resource_group
            for job in self._jobs.values()
            if job.resource_group in wanted
            and job.project_id == pipeline.project_id
            and job.pipeline_id != pipeline.id
            and job.state in OCCUPYING
        )

    # jobs

    async def load_job(self, job_id: JobId) -> Job | None:
        return self._jobs.get(job_id)

    async def load_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        return [self._jobs[job_id] for job_id in sorted(job_ids) if job_id in self._jobs]

    async def load_spec(self, job_id: JobId) -> JobSpec | None:
        return self._specs.get(job_id)

    async def load_belongings(self, job: Job, settings: Collection[str] = ()) -> Belongings:
        return Belongings(
            spec=await self.load_spec(job.id),
            pipeline=await self.load_pipeline(job.pipeline_id),
            project=await self.load_project(job.project_id),
            variables=[*await self.list_shared_variables(job.group_ids), *await self.list_variables(job.project_id)],
            settings=await self.load_settings(settings),
        )

    async def list_jobs(
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
        return page_of(
            (
                job
                for job in self._jobs.values()
                if project_id in (None, job.project_id)
                and pipeline_id in (None, job.pipeline_id)
                and (not states or job.state in states)
                and (with_retried or not job.retried)
                and is_trigger in (None, job.is_trigger)
                and runner_id in (None, job.runner_id)
                and (project_ids is None or job.project_id in project_ids)
            ),
            page,
        )

    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        job = self._jobs.get(job_id)
        changed = decide(job) if job else None
        if changed is not None:
            self._put_job(changed)
        return changed

    async def end_beside(self, known: Job, ended: Job) -> bool:
        if self._jobs.get(known.id) != known:
            return False
        others = (self._jobs[job_id] for job_id in self._jobs_of[known.pipeline_id] if job_id > known.id)
        if not any(job.state in UNDER_WAY and not job.retried for job in others):
            return False
        self._put_job(ended)
        return True

    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> Belongings | None:
        if self._jobs.get(known.id) != known or await self.load_runner(runner.id) != runner:
            return None
        if leased.request_id and await self.find_leased_job(runner.id, leased.request_id):
            return None
        found = await self.load_belongings(leased, settings)
        self._put_job(leased)
        return found

    async def change_family(self, pipeline_id: PipelineId, decide: Callable[[Family], Changes]) -> Applied:
        pipeline = self._pipelines.get(pipeline_id)
        if pipeline is None:
            raise NotFoundError(f"there is no pipeline {pipeline_id}")
        return self._apply(decide(self._family(pipeline)))

    def _apply(self, changes: Changes) -> Applied:
        applied = list(changes.jobs)
        for job in changes.jobs:
            self._put_job(job)
        for retry in changes.retries:
            job = replace(retry.job, id=JobId(self._draw("jobs")))
            self._put_job(job, self._specs[retry.of])
            applied.append(job)
        if changes.pipeline:
            self._pipelines[changes.pipeline.id] = changes.pipeline
        return Applied(jobs=tuple(applied), pipeline=changes.pipeline)

    def _put_job(self, job: Job, spec: JobSpec | None = None) -> None:
        self._jobs[job.id] = job
        self._jobs_of[job.pipeline_id][job.id] = None
        if spec:
            self._specs[job.id] = spec

    async def find_newest_success(
        self, project_id: ProjectId, ref: str, name: str, *, tag: bool | None = None
    ) -> Job | None:
        wanted = (project_id, ref, name, JobState.SUCCESS)
        found = (job for job in self._jobs.values() if (job.project_id, job.ref, job.name, job.state) == wanted)
        fitting = (job for job in found if tag in (None, self._pipelines[job.pipeline_id].tag))
        return max(fitting, key=lambda job: job.id, default=None)

    async def list_jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        return [job for job in self._jobs.values() if job.state in states]

    async def find_first_of_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Job | None:
        wanted = (project_id, group)
        found = (job for job in self._jobs.values() if (job.project_id, job.resource_group) == wanted)
        return next((job for job in found if job.state in states), None)

    async def find_leased_job(self, runner_id: RunnerId, request_id: str) -> Job | None:
        for job in self._jobs.values():
            if job.state is JobState.LEASED and (job.runner_id, job.request_id) == (runner_id, request_id):
                return job
        return None

    async def list_coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        open_ones = (pipeline for pipeline in self._pipelines.values() if pipeline.status not in OVER)
        moving = {one.id for one in open_ones if one.status != "manual" or one.updated_at > held_since}
        return [job for job in self._jobs.values() if job.state in states and job.pipeline_id in moving]

    async def count_jobs(self) -> Mapping[str, int]:
        return Counter(job.state.value for job in self._jobs.values() if job.state not in FINAL)

    async def count_pipelines(self) -> Mapping[str, int]:
        return Counter(pipeline.status for pipeline in self._pipelines.values() if pipeline.status not in OVER)

    # results and artifacts

    async def add_results(self, job_id: JobId, results: Sequence[StepResult], *, limit_bytes: int) -> int:
        if job_id not in self._jobs:
            raise NotFoundError(f"there is no job {job_id}")
        stored = self._results.setdefault(job_id, [])
        new, following = select_results(stored[-1] if stored else None, results, limit_bytes)
        stored += new
        return following

    async def list_results(self, job_id: JobId, *, after: int = 0, limit: int | None = None) -> Sequence[StepResult]:
        return self._results.get(job_id, [])[after : None if limit is None else after + limit]

    async def list_all_managers(self) -> Sequence[RunnerManager]:
        return [self._managers[at] for at in sorted(self._managers)]

    async def put_artifact(self, artifact: Artifact) -> Artifact:
        if artifact.job_id not in self._jobs:
            raise NotFoundError(f"there is no job {artifact.job_id}")
        return self._artifacts.setdefault((artifact.job_id, artifact.type), artifact)

    async def list_artifacts(self, job_id: JobId) -> Sequence[Artifact]:
        return [self._artifacts[at] for at in sorted(self._artifacts) if at[0] == job_id]

    async def change_artifacts(
        self, job_id: JobId, decide: Callable[[Job, Sequence[Artifact]], Leaves | None]
    ) -> Sequence[Artifact]:
        job, had = self._jobs.get(job_id), await self.list_artifacts(job_id)
        leaves = decide(job, had) if job else None
        if leaves is None:
            return ()
        self._put_job(leaves.job)
        kept = {artifact.type: artifact for artifact in leaves.artifacts}
        for artifact in had:
            if artifact.type in kept:
                self._artifacts[job_id, artifact.type] = kept[artifact.type]
            else:
                del self._artifacts[job_id, artifact.type]
        return [artifact for artifact in had if artifact.type not in kept]

    async def list_due_artifacts(self, now: float, *, limit: int) -> Sequence[Artifact]:
        due = [(one.look_at, at, one) for at, one in self._artifacts.items() if one.look_at is not None]
        return [one for look_at, _, one in sorted(due, key=lambda found: found[:2]) if look_at <= now][:limit]

    # what starts pipelines, and what they leave

    async def add_schedule(self, schedule: Schedule) -> Schedule:
        schedule = replace(schedule, id=self._draw("schedules"))
        self._schedules[schedule.id] = schedule
        return schedule

    async def load_schedule(self, schedule_id: int) -> Schedule | None:
        return self._schedules.get(schedule_id)

    async def list_schedules(self, project_id: ProjectId) -> Sequence[Schedule]:
        return [schedule for schedule in self._schedules.values() if schedule.project_id == project_id]

    async def change_schedule(self, schedule_id: int, decide: Callable[[Schedule], Schedule | None]) -> Schedule | None:
        schedule = self._schedules.get(schedule_id)
        changed = decide(schedule) if schedule else None
        if changed is not None:
            self._schedules[schedule_id] = changed
        return changed

    async def remove_schedule(self, schedule_id: int) -> bool:
        return removed(self._schedules, schedule_id)

    async def list_due_schedules(self, now: float) -> Sequence[Schedule]:
        due = [
            (schedule.next_run_at, schedule.id, schedule)
            for schedule in self._schedules.values()
            if schedule.active and schedule.next_run_at is not None and schedule.next_run_at <= now
        ]
        return [schedule for _, _, schedule in sorted(due, key=lambda entry: entry[:2])]

    async def add_trigger(self, trigger: TriggerToken) -> TriggerToken:
        if await self.find_trigger(trigger.token_hash):
            raise ConflictError("there is a trigger with this token already")
        trigger = replace(trigger, id=self._draw("triggers"))
        self._triggers[trigger.id] = trigger
        return trigger

    async def find_trigger(self, token_hash: str) -> TriggerToken | None:
        return next((trigger for trigger in self._triggers.values() if trigger.token_hash == token_hash), None)

    async def list_triggers(self, project_id: ProjectId) -> Sequence[TriggerToken]:
        return [trigger for trigger in self._triggers.values() if trigger.project_id == project_id]

    async def put_trigger(self, trigger: TriggerToken) -> None:
        if trigger.id not in self._triggers:
            raise NotFoundError(f"there is no trigger {trigger.id}")
        self._triggers[trigger.id] = trigger

    async def remove_trigger(self, trigger_id: int) -> bool:
        return removed(self._triggers, trigger_id)

    async def put_release(self, release: Release, *, replace: bool) -> bool:
        at = (release.project_id, release.tag)
        if (at in self._releases) is not replace:
            return False
        self._releases[at] = release
        return True

    async def list_releases(self, project_id: ProjectId) -> Sequence[Release]:
        found = [release for (owner, _), release in self._releases.items() if owner == project_id]
        return sorted(found, key=lambda release: (release.released_at, release.tag), reverse=True)

    async def remove_release(self, project_id: ProjectId, tag: str) -> bool:
        return removed(self._releases, (project_id, tag))
