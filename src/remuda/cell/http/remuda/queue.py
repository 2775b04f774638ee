"""`GET /queue`: the waiting and running jobs by what they require of a runner, with the jobs that are next and the
runners that fit. Administrators see all jobs. Others see the keys that jobs of their projects have: numbers of all jobs
of their organization, but only their own jobs, and only runners that they may see."""

from collections.abc import Sequence

from starlette.requests import Request

from remuda.cell.core.waiting.no_runner_reasons import runner_label
from remuda.cell.dispatch.queue_report import FittingRunner, QueuedJob, QueueKey, QueueKeyDetails
from remuda.cell.http.edge.access import USER
from remuda.cell.http.edge.admission import Caller, runner_level
from remuda.cell.http.edge.bodies import number_in_query
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.http.gitlab.jobs import list_own_projects
from remuda.cell.http.gitlab.views import time_text
from remuda.cell.values import Job, Page, Project
from remuda.model.job import ProjectId
from remuda.model.runner import Pool
from remuda.wire.explanations import EstimateInfo, RunnerCounts

JOBS = 10
"""How many waiting jobs of a key are listed if the query does not say."""
MOST_JOBS = 100
RUNNING_JOBS = 5
"""How many jobs of a runner are listed."""
routes = Routes()


class QueuedJobShape(Shape, kw_only=True):
    id: int
    name: str
    project: str
    pipeline_id: int
    ref: str
    priority: int
    priority_now: int
    """Including the increase for the time that it has waited."""
    pending_at: str | None
    position: int | None
    """Among the jobs of its key, from 1; null: far behind."""


class RunningJobShape(Shape, kw_only=True):
    id: int
    name: str
    project: str
    started_at: str | None


class FittingRunnerShape(Shape, kw_only=True):
    id: int
    description: str
    runner_type: str
    tag_list: list[str]
    availability: str
    """free, busy, blocked, paused, silent, offline or never_seen"""
    problem: str
    contacted_at: str | None
    running: int
    jobs: list[RunningJobShape]
    """The first of its jobs that the caller may see."""


class PoolShape(Shape, kw_only=True):
    kind: str
    id: int
    path: str | None
    """Full path of the group or project, path of the organization; null: the whole cell, or not visible."""


class QueueKeyShape(Shape, kw_only=True):
    tags: list[str]
    protected: bool
    pools: list[PoolShape]
    waiting: int
    running: int
    oldest_at: str | None
    reason: str
    """Why the jobs wait, as `GET /jobs/:id/why` says it."""
    advice: list[str]
    estimate: EstimateInfo | None
    """How long a job that is added now would wait."""
    counts: RunnerCounts | None
    """How many runners fit, by state, and how many do not, by reason."""
    runners: list[FittingRunnerShape]
    hidden_runners: int
    """Fitting runners that are not listed: the caller may not see them, or there are too many."""
    jobs: list[QueuedJobShape]
    hidden_jobs: int
    """Waiting jobs that are not listed."""


class _View:
    """Builds the answer for one caller. Remembers which projects and runners the caller may see."""

    def __init__(self, edge: Edge, caller: Caller, own: frozenset[ProjectId] | None) -> None:
        self._edge = edge
        self._caller = caller
        self.own = own
        self._projects: dict[ProjectId, Project | None] = {}
        self._runners: dict[int, bool] = {}

    async def key(self, key: QueueKey, details: QueueKeyDetails) -> QueueKeyShape:
        runners = [runner for runner in details.runners if await self._sees_runner(runner)]
        reason = details.reason
        counts = reason.runners if reason else None
        jobs = [await self._describe_job(queued) for queued in details.jobs]
        return QueueKeyShape(
            tags=list(key.need.tags),
            protected=key.need.protected,
            pools=[await self._pool(pool) for pool in key.need.pools],
            waiting=key.waiting,
            running=len(key.running),
            oldest_at=time_text(key.oldest_since),
            reason=reason.text if reason and key.waiting else "",
            advice=list(await self._advice(details, runners)) if key.waiting else [],
            estimate=reason.estimate if reason else None,
            counts=counts,
            runners=[await self._runner(runner) for runner in runners],
            hidden_runners=(counts.matching if counts else 0) - len(runners),
            jobs=jobs,
            hidden_jobs=key.waiting - len(jobs),
        )

    async def _advice(self, details: QueueKeyDetails, visible: Sequence[FittingRunner]) -> Sequence[str]:
        """The advice, without sentences about runners that the caller may not see."""
        if details.reason is None:
            return ()
        hidden = [runner_label(fitting.view.runner) for fitting in details.runners if fitting not in visible]
        return [text for text in details.reason.advice if not any(label in text for label in hidden)]

    async def _sees_runner(self, fitting: FittingRunner) -> bool:
        runner = fitting.view.runner
        if runner.id not in self._runners:
            try:
                await runner_level(self._edge, self._caller, runner)
                self._runners[runner.id] = True
            except ApiError:
                self._runners[runner.id] = False
        return self._runners[runner.id]

    async def _project(self, project_id: ProjectId) -> Project | None:
        if project_id not in self._projects:
            self._projects[project_id] = await self._edge.store.projects.load_project(project_id)
        return self._projects[project_id]

    async def _path(self, job: Job) -> str:
        project = await self._project(job.project_id)
        return project.path if project else ""

    async def _describe_job(self, queued: QueuedJob) -> QueuedJobShape:
        return QueuedJobShape.of(
            queued.job,
            project=await self._path(queued.job),
            priority=queued.priority,
            priority_now=queued.level,
            pending_at=time_text(queued.since),
            position=queued.position,
        )

    async def _runner(self, fitting: FittingRunner) -> FittingRunnerShape:
        view = fitting.view
        visible = [job for job in fitting.jobs if self.own is None or job.project_id in self.own]
        return FittingRunnerShape.of(
            view.runner,
            runner_type=view.runner.type.value,
            tag_list=list(view.runner.tags),
            availability=fitting.availability,
            problem=view.problem,
            contacted_at=time_text(view.contacted_at),
            running=view.jobs,
            jobs=[
                RunningJobShape.of(job, project=await self._path(job), started_at=time_text(job.start_time()))
                for job in visible[:RUNNING_JOBS]
            ],
        )

    async def _pool(self, pool: Pool) -> PoolShape:
        kind, number = pool
        path: str | None = None
        match kind:
            case "organization":
                organization = await self._edge.store.people.load_organization(number)
                path = organization.path if organization else None
            case "group":
                group = await self._edge.store.people.load_namespace(number)
                path = group.path if group and self._caller.level_in_group(group) is not None else None
            case "project":
                project = await self._project(ProjectId(number))
                path = project.path if project and self._caller.level_in(project) is not None else None
        return PoolShape(kind=kind, id=number, path=path)


@routes.get("/api/remuda/v1/queue", USER, query={"jobs": int})
async def show(edge: Edge, request: Request, caller: Caller, page: Page) -> Paged[QueueKeyShape]:
    """List what waiting and running jobs require of a runner: jobs in their order, fitting runners, reasons."""
    keys = await edge.dispatch.queue_report.list_keys()
    own: frozenset[ProjectId] | None = None
    if not caller.user.is_admin:
        own = frozenset(await list_own_projects(edge, caller) or ())
        of_organization = [key.of_organization(caller.user.organization_id) for key in keys]
        keys = [key for key in of_organization if key.has_job_of(own)]
    first = (page.number - 1) * page.size
    shown = keys[first : first + page.size]
    many = min(number_in_query(request, "jobs") or JOBS, MOST_JOBS)
    details = await edge.dispatch.queue_report.describe(shown, projects=own, jobs=many)
    view = _View(edge, caller, own)
    return Paged([await view.key(*pair) for pair in zip(shown, details, strict=True)], len(keys), page)
