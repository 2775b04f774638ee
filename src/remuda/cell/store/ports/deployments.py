"""The store's interface to environments, deployments and resource groups. Rows that follow from a change of jobs are
written in the transaction of that change: the functions of this module get it as `rows`."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from remuda.cell.core.jobs import environments
from remuda.cell.errors import ConflictError
from remuda.cell.store.ports.database import Database, Lock, Transaction, change_row
from remuda.cell.store.ports.tables import DEPLOYMENTS, ENVIRONMENTS, PIPELINES, RESOURCE_GROUPS
from remuda.cell.values import Job, Page, Pipeline
from remuda.cell.values.changes import Changes
from remuda.cell.values.deployments import (
    Deployment,
    DeploymentFilter,
    Environment,
    EnvironmentFilter,
    ResourceGroup,
)
from remuda.model.job import JobId, ProjectId


class DeploymentStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_environment(self, environment: Environment) -> Environment:
        """Store an environment with a new id. Raises ConflictError if the project has one of this name."""

        async def add(rows: Transaction) -> Environment:
            added = replace(environment, id=await rows.draw_id(ENVIRONMENTS))
            if not await rows.add_if_absent(ENVIRONMENTS, added):
                raise ConflictError(f"there is an environment {environment.name!r} already")
            return added

        return await self._database.change(add)

    async def load_environment(self, environment_id: int) -> Environment | None:
        return await self._database.find(ENVIRONMENTS, id=environment_id)

    async def find_environment(self, project_id: ProjectId, name: str) -> Environment | None:
        return await self._database.find(ENVIRONMENTS, project_id=project_id, name=name)

    async def list_environments(self, page: Page, selection: EnvironmentFilter) -> tuple[Sequence[Environment], int]:
        """Return one page of the environments that match `selection`, newest first, and the number of all matches."""
        return await self._database.find_page(ENVIRONMENTS, page, selection)

    async def list_due_environments(self, now: float, *, limit: int) -> Sequence[Environment]:
        """Return environments that the cell should stop at `now` (`auto_stop_at`), the longest due first."""
        return await self._database.find_all(
            ENVIRONMENTS, where=("auto_stop_at", "<=", now), order=("auto_stop_at", "id"), limit=limit
        )

    async def change_environment(
        self, environment_id: int, decide: Callable[[Environment], Environment | None]
    ) -> Environment | None:
        """Store and return what `decide` returns for an environment; None if it returns None or it does not exist."""
        return await change_row(self._database, ENVIRONMENTS, environment_id, decide)

    async def remove_environment(self, environment_id: int) -> bool:
        """Remove an environment with its deployments. Returns False if it does not exist."""

        async def remove(rows: Transaction) -> bool:
            await rows.remove(DEPLOYMENTS, environment_id=environment_id)
            return bool(await rows.remove(ENVIRONMENTS, id=environment_id))

        return await self._database.change(remove)

    async def remove_of_project(self, project_id: ProjectId) -> int:
        """Remove all environments, deployments and resource groups of a deleted project. Returns how many rows."""

        async def remove(rows: Transaction) -> int:
            tables = (DEPLOYMENTS, ENVIRONMENTS, RESOURCE_GROUPS)
            return sum([await rows.remove(table, project_id=project_id) for table in tables])

        return await self._database.change(remove)

    async def add_deployment(
        self, deployment: Deployment, *, after: Callable[[Environment], Environment]
    ) -> Deployment:
        """Store a deployment that has no job, with a new id and number, and what `after` makes of its environment."""

        async def add(rows: Transaction) -> Deployment:
            added = replace(
                deployment,
                id=await rows.draw_id(DEPLOYMENTS),
                iid=await _draw_iid(rows, deployment.project_id),
            )
            await rows.add(DEPLOYMENTS, added)
            if environment := await rows.find_locked(ENVIRONMENTS, id=deployment.environment_id):
                await rows.update(ENVIRONMENTS, after(environment))
            return added

        return await self._database.change(add, Lock("project", deployment.project_id))

    async def change_deployment(
        self,
        deployment_id: int,
        decide: Callable[[Deployment], Deployment | None],
        *,
        after: Callable[[Environment], Environment],
    ) -> Deployment | None:
        """Store and return what `decide` returns for a deployment, and with it what `after` makes of its environment.
        Returns None, and stores nothing, if `decide` returns None or there is no such deployment."""

        async def change(rows: Transaction) -> Deployment | None:
            deployment = await rows.find_locked(DEPLOYMENTS, id=deployment_id)
            changed = decide(deployment) if deployment else None
            if changed is not None:
                await rows.update(DEPLOYMENTS, changed)
                if environment := await rows.find_locked(ENVIRONMENTS, id=changed.environment_id):
                    await rows.update(ENVIRONMENTS, after(environment))
            return changed

        return await self._database.change(change)

    async def load_deployment(self, deployment_id: int) -> Deployment | None:
        return await self._database.find(DEPLOYMENTS, id=deployment_id)

    async def find_deployment_of_job(self, job_id: JobId) -> Deployment | None:
        return await self._database.find(DEPLOYMENTS, job_id=job_id)

    async def list_deployments(self, page: Page, selection: DeploymentFilter) -> tuple[Sequence[Deployment], int]:
        """Return one page of the deployments that match `selection`, in its order, and the number of all matches."""
        return await self._database.find_page(DEPLOYMENTS, page, selection)

    async def find_last_deployment(self, environment: Environment) -> Deployment | None:
        """Return the newest successful deployment of an environment; None if there is none."""
        selection = DeploymentFilter(
            project_id=environment.project_id, environment_id=environment.id, statuses=("success",)
        )
        deployments, _ = await self._database.find_page(DEPLOYMENTS, Page(size=1, counted=False), selection)
        return deployments[0] if deployments else None

    async def remove_deployment(self, deployment_id: int) -> bool:
        return bool(await self._database.remove(DEPLOYMENTS, id=deployment_id))

    async def list_resource_groups(self, project_id: ProjectId) -> Sequence[ResourceGroup]:
        """Return the resource groups of a project, oldest first."""
        return await self._database.find_all(RESOURCE_GROUPS, order=("id",), project_id=project_id)

    async def find_resource_group(self, project_id: ProjectId, key: str) -> ResourceGroup | None:
        return await self._database.find(RESOURCE_GROUPS, project_id=project_id, key=key)

    async def put_resource_group(self, group: ResourceGroup) -> bool:
        """Replace a stored resource group. Returns False if it does not exist."""
        return await self._database.update(RESOURCE_GROUPS, group)


async def _draw_iid(rows: Transaction, project_id: ProjectId) -> int:
    """Return the next number of a deployment in a project. The newest deployment is locked, so that transactions which
    do this at the same time wait for each other. If there is none, the unique index lets one of them fail, and the
    database runs it again. The project is not locked: others hold it and wait for resource groups that we may have."""
    locked: Deployment | None = None
    while True:
        newest = await rows.find_all(DEPLOYMENTS, order=("iid DESC",), limit=1, project_id=project_id)
        if not newest:
            return 1
        if locked is not None and newest[0].id == locked.id:
            return locked.iid + 1
        locked = await rows.find_locked(DEPLOYMENTS, id=newest[0].id)


async def add_rows_of_jobs(rows: Transaction, jobs: Sequence[Job], pipeline: Pipeline | None, *, now: float) -> None:
    """Add the environments and resource groups that new jobs name and that do not exist yet, and a deployment for each
    job that deploys. `pipeline` is that of the jobs; None: read it if it is needed."""
    await _add_resource_groups(rows, jobs, now)
    first = {job.environment: job for job in reversed(jobs) if job.environment}
    ids: dict[str, int] = {}
    for name, job in sorted(first.items()):
        environment = await rows.find(ENVIRONMENTS, project_id=job.project_id, name=name)
        if environment is None:
            new = environments.new_environment(job, environment_id=await rows.draw_id(ENVIRONMENTS), now=now)
            environment = new
            if not await rows.add_if_absent(ENVIRONMENTS, new):
                environment = await rows.find(ENVIRONMENTS, project_id=job.project_id, name=name)
        ids[name] = environment.id if environment else 0
    deploying = [job for job in jobs if environments.is_deployment(job)]
    if deploying and pipeline is None:
        pipeline = await rows.find(PIPELINES, id=deploying[0].pipeline_id)
    if not deploying or pipeline is None:
        return
    iid = await _draw_iid(rows, pipeline.project_id)
    for number, job in enumerate(deploying):
        deployment = environments.new_deployment(
            job,
            pipeline,
            ids[job.environment],
            deployment_id=await rows.draw_id(DEPLOYMENTS),
            iid=iid + number,
        )
        await rows.add(DEPLOYMENTS, deployment)


async def _add_resource_groups(rows: Transaction, jobs: Sequence[Job], now: float) -> None:
    for key in sorted({job.resource_group for job in jobs if job.resource_group}):
        project_id = jobs[0].project_id
        if await rows.find(RESOURCE_GROUPS, project_id=project_id, key=key) is None:
            number = await rows.draw_id(RESOURCE_GROUPS)
            group = ResourceGroup(id=number, project_id=project_id, key=key, created_at=now, updated_at=now)
            await rows.add_if_absent(RESOURCE_GROUPS, group)


async def change_environments(rows: Transaction, changes: Changes) -> None:
    """Store what the ends of jobs in `changes` make of their environments."""
    for job in sorted(filter(environments.ends_use, changes.jobs), key=lambda job: (job.environment, job.id)):
        environment = await rows.find_locked(ENVIRONMENTS, project_id=job.project_id, name=job.environment)
        if environment is not None:
            changed = environments.after_job(environment, job, changes.url_variables)
            if changed != environment:
                await rows.update(ENVIRONMENTS, changed)
