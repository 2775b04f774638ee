"""Collects what a hand-out needs: the parts of a job's payload from the store, and the keys that sign its token.

What goes into the payload is decided in `core.payload`. Dispatch calls this for every job it hands out.
"""

from remuda.cell.core.payload import Source, build_payload, timeout_of
from remuda.cell.core.tokens import JobTokens
from remuda.cell.errors import NotFoundError
from remuda.cell.ports import Store
from remuda.cell.values import Job, Runner
from remuda.wire.job_token import load_key, new_key
from remuda.wire.runner_api import JobPayload


async def load_job_tokens(store: Store, *, cell_id: int, issuer: str, now: float) -> JobTokens:
    """The cell's signing keys; the first start makes one."""
    if not await store.signing_keys():
        key = new_key(f"cell{cell_id}-{int(now)}")
        await store.add_signing_key(key.kid, key.pem())
    keys = await store.signing_keys()
    return JobTokens([load_key(kid, pem) for kid, pem in keys.items()], cell_id=cell_id, issuer=issuer)


async def gather_payload(
    store: Store, tokens: JobTokens, job: Job, runner: Runner, *, public_url: str, now: float
) -> JobPayload:
    """The payload of a leased job; NotFoundError when the store lacks a part of it."""
    spec = await store.job_spec(job.id)
    pipeline = await store.pipeline(job.pipeline_id)
    project = await store.project(job.project_id)
    if spec is None or pipeline is None or project is None:
        raise NotFoundError(f"job {job.id} lacks its spec, pipeline or project in the store")
    return build_payload(
        job=job,
        spec=spec,
        pipeline=pipeline,
        project=project,
        variables=await store.variables(project.id),
        runner=runner,
        dependencies=await _sources(store, job),
        public_url=public_url,
        token=tokens.issue(job, timeout_seconds=timeout_of(job, project, runner), now=now),
    )


async def _sources(store: Store, job: Job) -> list[Source]:
    """The archives of the jobs it depends on, where they left one; those of the newest tries."""
    family = await store.family(job.pipeline_id) if job.artifacts_from else None
    makers = [maker for maker in family.jobs if maker.name in job.artifacts_from] if family else []
    return [
        Source(maker, artifact)
        for maker in makers
        for artifact in await store.artifacts(maker.id)
        if artifact.type == "archive"
    ]
