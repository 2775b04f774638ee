"""Shows users the payload of a job: built in the same way as for a runner, but with secrets and tokens masked."""

from typing import Any

from msgspec.structs import replace

from remuda.cell.core.payload.payload import build_payload, for_other_runners
from remuda.cell.core.payload.redaction import MASKED, mask_payload, secrets_to_mask
from remuda.cell.dispatch.artifact_dependencies import Dependencies, find_dependencies
from remuda.cell.dispatch.payload_inputs import load_context, with_policies
from remuda.cell.errors import InvalidError, MissingDependencyError
from remuda.cell.store.ports import Store
from remuda.cell.values import Job, Runner
from remuda.lib.masking import Secrets
from remuda.model.job import RunnerId
from remuda.model.runner import RunnerType

_NOBODY = Runner(id=RunnerId(0), type=RunnerType.INSTANCE, token_hash="", created_at=0)
"""Stands in for the runner of a job that has none, or whose runner was removed."""


async def load_secrets(store: Store, job: Job) -> Secrets:
    """Return an object that masks the values of masked variables of the job's project, its groups and the cell."""
    variables = [
        *await store.projects.list_variables(job.project_id),
        *await store.projects.list_shared_variables(job.group_ids),
    ]
    return secrets_to_mask(variable.value for variable in variables if variable.masked)


async def build_payload_view(store: Store, job: Job, *, public_url: str, now: float) -> Any:
    if job.is_trigger:
        raise InvalidError(
            f"job {job.id} is a trigger job: it starts a pipeline, no runner gets it, so it has no payload"
        )
    runner = await store.runners.load_runner(job.runner_id) if job.runner_id is not None else None
    context = await load_context(store, job, runner or _NOBODY, public_url=public_url)
    try:
        dependencies = await find_dependencies(store, context, now=now)
    except MissingDependencyError:
        dependencies = Dependencies()
    payload = build_payload(
        replace(context, inherited=dependencies.variables),
        dependencies=dependencies.sources,
        token=MASKED,
        id_tokens=dict.fromkeys(context.spec.id_tokens, MASKED),
    )
    payload = for_other_runners(await with_policies(store, job, payload))
    return mask_payload(payload, await load_secrets(store, job))
