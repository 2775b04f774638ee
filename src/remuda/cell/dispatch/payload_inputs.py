"""Reads what the payload of a job is built from, and signs its tokens. Invariant: before the payload is sent, these are
stored with the job: the ids of jobs of other pipelines whose artifacts it names (the runner can download no others),
and the hash of the job token if that is opaque (random, without a signature)."""

import asyncio
import secrets
import uuid
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from remuda.cell.core.jobs.runner_features import missing_features
from remuda.cell.core.payload.id_tokens import build_claims
from remuda.cell.core.payload.payload import build_payload
from remuda.cell.core.payload.step_policies import for_payload, policy_setting, scopes_of
from remuda.cell.core.payload.variables import JobContext, applicable, cell_variables, expansion, user_variables
from remuda.cell.dispatch.artifact_dependencies import find_dependencies
from remuda.cell.errors import CannotStartError, InvalidError, NotFoundError, ProjectDeletedError
from remuda.cell.pipelines.cross_project_access import level_of
from remuda.cell.secrets.key_ring import KeyRing
from remuda.cell.store.ports import Store
from remuda.cell.values import USER_ID, Job, Project, ProjectVariable, Runner
from remuda.cell.values.changes import PayloadParts
from remuda.cell.values.people import Level, User
from remuda.model.job import FailureReason, JobId
from remuda.pipeline import ExpansionError
from remuda.pipeline.syntax.variable_expansion import Expansion
from remuda.wire.id_token import KEY_PREFIX, IdKey, load_id_key, new_id_key, sign_id_token
from remuda.wire.runner_api import JobPayload


async def load_id_keys(store: Store) -> Sequence[IdKey]:
    """Return the keys that sign identity tokens (JWTs of the `id_tokens` keyword), the newest last."""
    stored = await store.settings.load_signing_keys()
    return [await asyncio.to_thread(load_id_key, kid, pem) for kid, pem in stored.items() if kid.startswith(KEY_PREFIX)]


async def load_variables(store: Store, project: Project, environment: str = "") -> tuple[ProjectVariable, ...]:
    """Return the variables of project, groups and cell that apply to a job with this environment (empty: none)."""
    variables = [
        *await store.projects.list_shared_variables(project.group_ids),
        *await store.projects.list_variables(project.id),
    ]
    return tuple(applicable(variables, group_ids=project.group_ids, environment=environment))


async def load_context(store: Store, job: Job, runner: Runner, *, public_url: str) -> JobContext:
    """Read all that a job's variables are computed from. NotFoundError if spec, pipeline or project are missing."""
    return await _build_context(store, job, runner, await store.jobs.load_payload_parts(job), public_url)


async def _build_context(store: Store, job: Job, runner: Runner, parts: PayloadParts, public_url: str) -> JobContext:
    spec, pipeline, project = parts.spec, parts.pipeline, parts.project
    if project is not None and project.removed_at is not None:
        raise ProjectDeletedError(f"the project of job {job.id} was deleted")
    if spec is None or pipeline is None or project is None:
        raise NotFoundError(f"job {job.id} lacks its spec, pipeline or project in the store")
    if project.group_ids == job.group_ids:
        variables = tuple(applicable(parts.variables, group_ids=project.group_ids, environment=job.environment))
    else:
        variables = await load_variables(store, project, job.environment)
    return JobContext(
        job=job,
        spec=spec,
        pipeline=pipeline,
        project=project,
        variables=variables,
        runner=runner,
        public_url=public_url,
    )


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A payload, with what `store_draft` must store before it is sent: artifact jobs (`gets`) and the token's hash."""

    context: JobContext
    payload: JobPayload
    gets: tuple[JobId, ...]
    """Jobs of other pipelines whose artifacts the payload names."""
    token_hash: str


async def draft_payload(
    store: Store,
    keys: KeyRing,
    job: Job,
    runner: Runner,
    parts: PayloadParts,
    *,
    features: Mapping[str, bool],
    public_url: str,
    now: float,
) -> Draft:
    """Build the payload of a job just handed out. `features`: what the runner supports. `parts`: spec, pipeline,
    project, variables, and the settings that `policy_settings` names. Raises NotFoundError if one of these is missing
    in the store, MissingDependencyError if required artifacts are missing, CannotStartError for other reasons."""
    context = await _build_context(store, job, runner, parts, public_url)
    if context.project.archived:
        raise CannotStartError("the project is archived, so no job starts in it", FailureReason.ARCHIVED_FAILURE)
    dependencies = await find_dependencies(store, context, now=now)
    await _check(store, context, features)
    context = replace(context, inherited=dependencies.variables)
    token = await keys.issue(job, timeout_seconds=context.timeout, user_id=context.pipeline.user_id)
    try:
        payload = build_payload(
            context,
            dependencies=dependencies.sources,
            token=token,
            id_tokens=await _id_tokens(store, context, now),
            deploy_token=await _deploy_token(store, context.project, now),
        )
    except InvalidError as error:
        raise CannotStartError(str(error), FailureReason.SCRIPT_FAILURE) from None
    payload = _with_policy(payload, job, parts.settings)
    return Draft(context=context, payload=payload, gets=dependencies.outside, token_hash=keys.stored_hash(job, token))


async def _deploy_token(store: Store, project: Project, now: float) -> tuple[str, str] | None:
    """Return user name and token of the deploy token for the project's jobs; None if there is no active one."""
    if not project.ci_deploy_token_id:
        return None
    token = await store.hooks.load_deploy_token(project.ci_deploy_token_id)
    if token is None or not token.is_active(now) or "token" not in token.secrets:
        return None
    return token.username, token.secrets["token"]


async def store_draft(store: Store, draft: Draft) -> Job:
    """Store with the job which artifacts of other pipelines its payload names, and its token's hash. Returns the job as
    stored; unchanged if there is nothing to store or it was handed out again."""
    job = draft.context.job
    if (draft.gets, draft.token_hash) == (job.gets, job.token_hash):
        return job
    access = {"gets": draft.gets, "token_hash": draft.token_hash}
    changed = await store.jobs.change_job(
        job.id, lambda row: replace(row, **access) if row.epoch == job.epoch else None, known=job
    )
    return changed or job


async def _check(store: Store, context: JobContext, features: Mapping[str, bool]) -> None:
    """Raise CannotStartError if the runner lacks a feature that the job needs, or the pipeline's user is blocked."""
    if missing := missing_features(context, features):
        raise CannotStartError(missing, FailureReason.RUNNER_UNSUPPORTED)
    # The first user cannot be blocked.
    user = await store.people.load_user(context.pipeline.user_id) if context.pipeline.user_id != USER_ID else None
    if user is not None and user.state == "blocked":
        raise CannotStartError(f'"{user.username}", who started it, is blocked', FailureReason.USER_BLOCKED)


def policy_settings(job: Job) -> list[str]:
    """Return the names of the settings that contain the step policies (what steps are allowed to do) for a job."""
    return [policy_setting(scope) for scope in scopes_of(job.key())]


async def with_policies(store: Store, job: Job, payload: JobPayload) -> JobPayload:
    return _with_policy(payload, job, await store.settings.load_settings(policy_settings(job)))


def _with_policy(payload: JobPayload, job: Job, settings: Mapping[str, str]) -> JobPayload:
    policy = for_payload(scopes_of(job.key()), settings) if settings else None
    if policy is None:
        return payload
    remuda = payload.remuda if isinstance(payload.remuda, dict) else {}
    return replace(payload, remuda={**remuda, "step_policy": policy})


async def _id_tokens(store: Store, context: JobContext, now: float) -> dict[str, str]:
    """Sign the identity tokens (JWTs) that the `id_tokens` keyword of the job asks for, and return them by variable
    name. If the cell has no key for that, one is created."""
    if not context.spec.id_tokens:
        return {}
    keys = await load_id_keys(store)
    if not keys:
        key = await asyncio.to_thread(new_id_key, f"{int(now)}-{secrets.token_hex(4)}")
        await store.settings.add_signing_key(key.kid, key.pem())
        keys = [key]
    user = await store.people.load_user(context.pipeline.user_id)
    level = await level_of(store, context.pipeline.user_id, context.project, now) or 0
    names = [role.name.lower() for role in Level if role <= level]
    # In a thread, because a file may ask for thousands.
    return await asyncio.to_thread(_sign_id_tokens, context, keys[-1], now, names[-1] if names else "", user)


def _sign_id_tokens(
    context: JobContext, key: IdKey, now: float, access_level: str, user: User | None
) -> dict[str, str]:
    expand = expansion([*cell_variables(context), *user_variables(context)])
    tokens = {}
    for name, request in context.spec.id_tokens.items():
        aud = request["aud"]
        audience = _expand(expand, aud) if isinstance(aud, str) else [_expand(expand, text) for text in aud]
        token_id = str(uuid.uuid4())
        content = build_claims(
            context, audience=audience, token_id=token_id, now=now, access_level=access_level, user=user
        )
        tokens[name] = sign_id_token(content, key)
    return tokens


def _expand(expand: Expansion, text: str) -> str:
    try:
        return expand.expand(text)
    except ExpansionError:
        # No service accepts such an audience, so the job fails where it presents the token.
        return text
