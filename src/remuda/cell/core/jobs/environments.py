"""Decides about environments: what a job's end makes of its environment, and what has to happen to stop one. As in
GitLab, a successful job with the action `start` makes its environment available, one with `stop` stops it."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from remuda.cell.core.payload.predefined_variables import environment_slug, tier
from remuda.cell.values.deployments import AVAILABLE, STOPPED, STOPPING, Deployment, Environment
from remuda.cell.values.jobs import EnvironmentPlan, Job, Pipeline
from remuda.model.job import FINAL, OCCUPYING, JobState
from remuda.pipeline import ExpansionError, expand
from remuda.pipeline.spec import Environment as Keyword
from remuda.pipeline.syntax.durations import parse_duration
from remuda.pipeline.syntax.variable_expansion import Expansion

_MAX_URL = 255
_RENEWING = ("start", "prepare", "access")
"""Actions whose jobs set the time at which the environment is stopped (`auto_stop_in`)."""


def plan_environment(keyword: Keyword, expansion: Expansion) -> EnvironmentPlan | None:
    """Return what a job's `environment` says besides name and action; None if that is nothing. `expansion` leaves
    variables as written that are unknown yet."""
    plan = EnvironmentPlan(
        url=_expand_or_empty(expansion, keyword.url),
        on_stop=keyword.on_stop,
        auto_stop_in=_expand_or_empty(expansion, keyword.auto_stop_in),
        tier=keyword.deployment_tier,
    )
    return None if plan == EnvironmentPlan() else plan


def _expand_or_empty(expansion: Expansion, text: str) -> str:
    try:
        return expansion.expand(text)
    except ExpansionError:
        return ""


def is_deployment(job: Job) -> bool:
    """Return whether the job deploys: it has an environment, and its action is `start`."""
    return bool(job.environment) and job.environment_action in ("", "start")


def new_environment(job: Job, *, environment_id: int, now: float) -> Environment:
    """Return the environment of a job that is the first one to name it."""
    plan = job.environment_plan or EnvironmentPlan()
    return Environment(
        id=environment_id,
        project_id=job.project_id,
        name=job.environment,
        slug=environment_slug(job.environment),
        tier=plan.tier or tier(job.environment),
        created_at=now,
        updated_at=now,
    )


def new_deployment(job: Job, pipeline: Pipeline, environment_id: int, *, deployment_id: int, iid: int) -> Deployment:
    return Deployment(
        id=deployment_id,
        iid=iid,
        project_id=job.project_id,
        environment_id=environment_id,
        job_id=job.id,
        ref=job.ref,
        tag=job.tag,
        sha=pipeline.sha,
        created_at=job.created_at,
        user_id=pipeline.user_id,
    )


def ends_use(job: Job) -> bool:
    """Return whether a changed job has just ended and its end may change its environment."""
    return bool(job.environment) and not job.retried and job.state in FINAL and job.state is not JobState.SKIPPED


def after_job(environment: Environment, job: Job, variables: Mapping[str, str]) -> Environment:
    """Return the environment after the end of a job that uses it. `variables` are those of the dotenv reports, for its
    URL. A stop job that failed or was canceled makes an environment that was stopping available again."""
    now, action = job.finished_at or job.updated_at, job.environment_action or "start"
    if job.state is not JobState.SUCCESS:
        is_failed_stop = action == "stop" and environment.state == STOPPING
        return replace(environment, state=AVAILABLE, updated_at=now) if is_failed_stop else environment
    if action == "stop":
        return replace(environment, state=STOPPED, auto_stop_at=None, updated_at=now)
    plan = job.environment_plan or EnvironmentPlan()
    if action in _RENEWING and (seconds := parse_duration(plan.auto_stop_in)) is not None:
        environment = replace(environment, auto_stop_at=now + seconds, updated_at=now)
    if action != "start":
        return environment
    return replace(
        environment,
        state=AVAILABLE,
        external_url=_expand_url(plan.url, job, variables) or environment.external_url,
        tier=plan.tier or environment.tier,
        updated_at=now,
    )


def _expand_url(url: str, job: Job, variables: Mapping[str, str]) -> str:
    own = {"CI_JOB_ID": str(job.id), "CI_PIPELINE_ID": str(job.pipeline_id)}
    try:
        expanded = expand(url, {**own, **variables}).strip()
    except ExpansionError:
        return ""
    return expanded if is_valid_url(expanded) else ""


def is_valid_url(url: str) -> bool:
    """Return whether a text can be the URL of an environment: http or https, with a host, at most 255 characters."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return len(url) <= _MAX_URL and parts.scheme in ("http", "https") and bool(parts.netloc) and url.isprintable()


def find_stop_job(deployed: Job | None, jobs: Sequence[Job]) -> Job | None:
    """Return the job that stops the environment of `deployed`, the job of its last deployment: `on_stop` names it. None
    if there is none, or it cannot be started: it waits for other jobs or was skipped. `jobs`: the newest attempts."""
    plan = deployed.environment_plan if deployed else None
    if plan is None or not plan.on_stop:
        return None
    job = next((job for job in jobs if job.name == plan.on_stop), None)
    return job if job and (job.state in _STARTABLE or job.state in OCCUPYING) else None


_STARTABLE = frozenset(
    {
        JobState.MANUAL,
        JobState.SCHEDULED,
        JobState.SUCCESS,
        JobState.FAILED,
        JobState.CANCELED,
        JobState.WAITING_FOR_RESOURCE,
    }
)
