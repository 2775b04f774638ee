"""The in-memory implementation of the store's interface `JobStore`, for unit tests."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from remuda.cell.store.memory.database import MemoryDatabase
from remuda.cell.store.ports.jobs import JobStore
from remuda.cell.store.ports.projects import ProjectStore
from remuda.cell.store.ports.settings import SettingStore
from remuda.cell.store.ports.tables import JOBS, PIPELINES, RUNNERS
from remuda.cell.values import ALL_JOBS, UNDER_WAY, Job, JobFilter, Page, Runner
from remuda.cell.values.changes import PayloadParts
from remuda.model.job import FINAL, JobId, JobState, ProjectId, RunnerId
from remuda.model.progress import OVER
from remuda.pipeline import JobSpec


class MemoryJobs(JobStore):
    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self._database = database
        self._projects = ProjectStore(database)
        self._settings = SettingStore(database)

    async def load_job(self, job_id: JobId) -> Job | None:
        return self._database.get(JOBS, job_id)

    async def load_jobs(self, job_ids: Collection[JobId]) -> Sequence[Job]:
        return [job for job_id in sorted(job_ids) if (job := self._database.get(JOBS, job_id))]

    async def load_spec(self, job_id: JobId) -> JobSpec | None:
        return self._database.specs.get(job_id)

    async def load_payload_parts(self, job: Job, settings: Collection[str] = ()) -> PayloadParts:
        shared = await self._projects.list_shared_variables(job.group_ids)
        return PayloadParts(
            spec=await self.load_spec(job.id),
            pipeline=self._database.get(PIPELINES, job.pipeline_id),
            project=await self._projects.load_project(job.project_id),
            variables=[*shared, *await self._projects.list_variables(job.project_id)],
            settings=await self._settings.load_settings(settings),
        )

    async def list_jobs(self, page: Page, selection: JobFilter = ALL_JOBS) -> tuple[Sequence[Job], int]:
        return await self._database.find_page(JOBS, page, selection)

    async def list_jobs_in(self, states: Collection[JobState]) -> Sequence[Job]:
        return [job for job in self._database.values(JOBS) if job.state in states]

    async def list_coming_jobs(self, states: Collection[JobState], *, held_since: float) -> Sequence[Job]:
        pipelines = (pipeline for pipeline in self._database.values(PIPELINES) if pipeline.status not in OVER)
        moving = {row.id for row in pipelines if row.status != "manual" or row.updated_at > held_since}
        return [job for job in await self.list_jobs_in(states) if job.pipeline_id in moving]

    async def count_jobs(self) -> Mapping[str, int]:
        return Counter(job.state.value for job in self._database.values(JOBS) if job.state not in FINAL)

    async def find_newest_success(
        self, project_id: ProjectId, ref: str, name: str, *, tag: bool | None = None
    ) -> Job | None:
        key = (project_id, ref, name)
        for job in sorted(await self.list_jobs_in([JobState.SUCCESS]), key=lambda job: job.id, reverse=True):
            pipeline = self._database.get(PIPELINES, job.pipeline_id)
            if (job.project_id, job.ref, job.name) == key and pipeline and tag in (None, pipeline.tag):
                return job
        return None

    async def find_first_of_group(self, project_id: ProjectId, group: str, states: Collection[JobState]) -> Job | None:
        return next(iter(await self.list_jobs_of_group(project_id, group, states)), None)

    async def list_jobs_of_group(
        self, project_id: ProjectId, group: str, states: Collection[JobState]
    ) -> Sequence[Job]:
        key = (project_id, group)
        return [job for job in await self.list_jobs_in(states) if (job.project_id, job.resource_group) == key]

    async def find_leased_job(self, runner_id: RunnerId, request_id: str) -> Job | None:
        key = (runner_id, request_id)
        jobs = await self.list_jobs_in([JobState.LEASED])
        return next((job for job in jobs if (job.runner_id, job.request_id) == key), None)

    async def change_job(
        self, job_id: JobId, decide: Callable[[Job], Job | None], *, known: Job | None = None
    ) -> Job | None:
        job = self._database.get(JOBS, job_id)
        changed = decide(job) if job else None
        if changed is not None:
            await self._database.update_job(changed)
        return changed

    async def end_beside(self, known: Job, ended: Job) -> bool:
        if self._database.get(JOBS, known.id) != known:
            return False
        later = await self.load_jobs([id_ for id_ in self._database.job_ids[known.pipeline_id] if id_ > known.id])
        if not any(job.state in UNDER_WAY and not job.retried for job in later):
            return False
        await self._database.update_job(ended)
        return True

    async def lease_job(
        self, known: Job, leased: Job, runner: Runner, settings: Collection[str] = ()
    ) -> PayloadParts | None:
        if self._database.get(JOBS, known.id) != known or self._database.get(RUNNERS, runner.id) != runner:
            return None
        if leased.request_id and await self.find_leased_job(runner.id, leased.request_id):
            return None
        parts = await self.load_payload_parts(leased, settings)
        await self._database.update_job(leased)
        return parts
