"""Predefined variables of a pipeline and of a job, with GitLab's names and values. `rules` in the CI file are evaluated
with the variables of the pipeline before it is stored; jobs get them again with their payloads. Values that only the
repository or the request knows (commit message, merge request ...) are stored in `Pipeline.predefined`, so rules and
jobs see the same values, and a hand-out to a runner needs no git. Stored values override computed ones."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from remuda import __version__
from remuda.cell.values import USER_ID, Job, Pipeline, Project, Runner
from remuda.cell.values.people import User
from remuda.lib.clock import rfc3339
from remuda.model.progress import When
from remuda.pipeline import JobSpec
from remuda.pipeline.predefined_variables import SOURCE_BRANCH, of_server, slug, word
from remuda.pipeline.predefined_variables import of_project as named_project
from remuda.wire.routable_token import to_base36

GITLAB_VERSION = "18.5.0"
"""The GitLab version that this cell reports. Clients and scripts choose features by it."""

REGISTRY = "CI_REGISTRY"
"""Key in `Pipeline.predefined`: the registry host with which image names begin. Missing if there is no registry."""

_GROUPED_BY_HAND = re.compile(r"[\s:]+[0-9]+[\s:/\\]+[0-9]+\s*")
_TIERS = (
    ("development", re.compile(r"dev|review|trunk", re.IGNORECASE)),
    ("testing", re.compile(r"te?st|int|acce?pt|qa|qc|control|quality", re.IGNORECASE)),
    ("staging", re.compile(r"sta?g|mode?l|pre|demo|non", re.IGNORECASE)),
    ("production", re.compile(r"pro?d|live", re.IGNORECASE)),
)


def of_pipeline(pipeline: Pipeline, project: Project, public_url: str) -> dict[str, str]:
    """Return the predefined variables that all jobs of a pipeline share; without its ids and URL until it is stored."""
    base = public_url.rstrip("/")
    of_request = pipeline.merge_request_iid is not None
    ref = pipeline.predefined.get(SOURCE_BRANCH, pipeline.ref) if of_request else pipeline.ref
    values = {
        "CI": "true",
        "GITLAB_CI": "true",
        **_of_server(base),
        **of_project(project, base),
        "CI_CONFIG_PATH": ".gitlab-ci.yml" if pipeline.is_child else pipeline.file,
        "CI_PIPELINE_SOURCE": pipeline.source,
        "CI_PIPELINE_CREATED_AT": rfc3339(pipeline.created_at),
        "CI_COMMIT_SHA": pipeline.sha,
        "CI_COMMIT_SHORT_SHA": pipeline.sha[:8],
        "CI_COMMIT_BEFORE_SHA": pipeline.before_sha,
        "CI_COMMIT_REF_NAME": ref,
        "CI_COMMIT_REF_SLUG": slug(ref),
        "CI_COMMIT_REF_PROTECTED": word(pipeline.protected),
        "GITLAB_USER_ID": str(pipeline.user_id),
        "GITLAB_USER_LOGIN": "root",
        "GITLAB_USER_NAME": "Administrator",
        "GITLAB_USER_EMAIL": f"root@{urlsplit(base).hostname or 'localhost'}",
    }
    if not of_request:
        values["CI_COMMIT_TAG" if pipeline.tag else "CI_COMMIT_BRANCH"] = pipeline.ref
    if pipeline.name:
        values["CI_PIPELINE_NAME"] = pipeline.name
    if pipeline.source == "trigger":
        values["CI_PIPELINE_TRIGGERED"] = "true"
    if pipeline.id:
        values["CI_PIPELINE_ID"] = str(pipeline.id)
        values["CI_PIPELINE_IID"] = str(pipeline.iid)
        values["CI_PIPELINE_URL"] = f"{values['CI_PROJECT_URL']}/-/pipelines/{pipeline.id}"
    if registry := pipeline.predefined.get(REGISTRY):
        values["CI_REGISTRY_IMAGE"] = f"{registry}/{project.path.lower()}"
    values |= pipeline.predefined
    return {**values, "CI_DEFAULT_BRANCH_SLUG": slug(values["CI_DEFAULT_BRANCH"])}


def of_user(user: User) -> dict[str, str]:
    """Return variables about the user; empty for the first administrator, whose values `of_pipeline` already has."""
    if user.id == USER_ID:
        return {}
    return {"GITLAB_USER_LOGIN": user.username, "GITLAB_USER_NAME": user.name, "GITLAB_USER_EMAIL": user.email}


def of_spec(spec: JobSpec, environment: str = "") -> dict[str, str]:
    """Return the predefined variables from a job's definition; `environment` is its environment's expanded name."""
    values = {
        "CI_JOB_NAME": spec.name,
        "CI_JOB_NAME_SLUG": slug(spec.name),
        "CI_JOB_GROUP_NAME": spec.written_name or group_name(spec.name),
        "CI_JOB_STAGE": spec.stage,
        "CI_NODE_TOTAL": "1",
    }
    if spec.environment is not None and environment:
        values["CI_ENVIRONMENT_NAME"] = environment
        values["CI_ENVIRONMENT_SLUG"] = environment_slug(environment)
        values["CI_ENVIRONMENT_ACTION"] = spec.environment.action
        values["CI_ENVIRONMENT_TIER"] = spec.environment.deployment_tier or tier(environment)
        if spec.environment.url:
            values["CI_ENVIRONMENT_URL"] = spec.environment.url
    return values


def of_job(
    *, job: Job, spec: JobSpec, project: Project, runner: Runner, public_url: str, timeout: int
) -> dict[str, str]:
    """Return the predefined variables of a job for its runner, without those that all jobs of its pipeline share."""
    values = {
        **of_spec(spec, job.environment),
        "CI_JOB_ID": str(job.id),
        "CI_JOB_URL": f"{public_url.rstrip('/')}/{project.path}/-/jobs/{job.id}",
        "CI_JOB_STARTED_AT": rfc3339(job.leased_at or job.created_at),
        "CI_JOB_STARTED_AT_SLUG": slug(rfc3339(job.leased_at or job.created_at)),
        "CI_JOB_TIMEOUT": str(timeout),
        "CI_JOB_TAGS": _as_json(tuple(job.tags)),
        "CI_RUNNER_ID": str(runner.id),
        "CI_RUNNER_DESCRIPTION": runner.description,
        "CI_RUNNER_TAGS": _as_json(tuple(runner.tags)),
    }
    return values | {"CI_JOB_MANUAL": "true"} if job.when is When.MANUAL else values


def environment_slug(name: str) -> str:
    """Return an environment's name in a form for host names: at most 24 characters, with a hash if it was changed."""
    short = re.sub(r"[^a-z0-9]", "-", name.lower())
    short = re.sub(r"-+", "-", short if short[:1].isalpha() else f"env-{short}")
    if short != name or len(short) > 24:
        short = short[:17].removesuffix("-") + "-" + to_base36(int(hashlib.sha256(name.encode()).hexdigest(), 16))[-6:]
    return short.removesuffix("-")


def tier(environment: str) -> str:
    """Return the deployment tier (such as `production`) that GitLab derives from the name of an environment."""
    return next((kind for kind, names in _TIERS if names.search(environment)), "other")


def group_name(job: str) -> str:
    """Return the name of a job without the counter at its end that parallel jobs have: `test` for `test 1/3`."""
    endings = list(_GROUPED_BY_HAND.finditer(job))
    return job[: endings[-1].start()] if endings and endings[-1].end() == len(job) and endings[-1].start() else job


def is_literal(key: str, value: str) -> bool:
    """Return whether `$` in this variable's value is plain text. CI_ENVIRONMENT_URL, written by users, is expanded."""
    return "$" in value and key != "CI_ENVIRONMENT_URL"


def of_project(project: Project, url: str) -> dict[str, str]:
    return {
        **named_project(path=project.path, url=f"{url}/{project.path}", number=project.id, title=project.name),
        "CI_PROJECT_DESCRIPTION": project.description,
        "CI_PROJECT_NAMESPACE_ID": str(project.namespace_id),
        "CI_PROJECT_VISIBILITY": project.visibility,
        "CI_PROJECT_CLASSIFICATION_LABEL": "",
        "CI_DEFAULT_BRANCH": project.default_branch,
    }


@lru_cache(maxsize=256)
def _as_json(tags: tuple[str, ...]) -> str:
    return json.dumps(tags)


@lru_cache(maxsize=16)
def _of_server(base: str) -> Mapping[str, str]:
    """Return the variables about the cell at the URL `base`. Cached, so callers must not change the mapping."""
    major, minor, patch = GITLAB_VERSION.split(".")
    return {
        **of_server(base),
        "CI_SERVER_NAME": "Remuda",
        "CI_SERVER_VERSION": GITLAB_VERSION,
        "CI_SERVER_VERSION_MAJOR": major,
        "CI_SERVER_VERSION_MINOR": minor,
        "CI_SERVER_VERSION_PATCH": patch,
        "CI_SERVER_REVISION": f"remuda-{__version__}",
    }
