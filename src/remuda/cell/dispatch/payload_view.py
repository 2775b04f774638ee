"""A job's payload for people: built as for a runner, without anything that opens something.

Decided here: that nothing is issued for it, no token and no identity; where one would stand, a mask stands. What else
is a secret is decided in `core.redaction`. The HTTP edge calls this.
"""

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
"""For a job that no runner has, or whose runner was removed."""


async def load_secrets(store: Store, job: Job) -> Secrets:
    """The masked variables that a job may know, of its project, its groups and the cell."""
    kept = [
        *await store.projects.list_variables(job.project_id),
        *await store.projects.list_shared_variables(job.group_ids),
    ]
    return secrets_to_mask(variable.value for variable in kept if variable.masked)


async def build_payload_view(store: Store, job: Job, *, public_url: str, now: float) -> Any:
    """What any runner gets with a job, as JSON without secrets."""
    if job.is_trigger:
        raise InvalidError(f"job {job.id} starts a pipeline by itself; no runner ever gets it, so it has no payload")
    runner = await store.runners.load_runner(job.runner_id) if job.runner_id is not None else None
    of = await load_context(store, job, runner or _NOBODY, public_url=public_url)
    try:
        found = await find_dependencies(store, of, now=now)
    except MissingDependencyError:
        found = Dependencies()
    payload = build_payload(
        replace(of, inherited=found.variables),
        dependencies=found.sources,
        token=MASKED,
        id_tokens=dict.fromkeys(of.spec.id_tokens, MASKED),
    )
    payload = for_other_runners(await with_policies(store, job, payload))
    return mask_payload(payload, await load_secrets(store, job))
