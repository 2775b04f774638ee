"""The variables that the cell itself gives: of a pipeline, and of a job.

Decided here: their names and values, which are GitLab's. Rules are judged with those of the pipeline before it is
stored, a job gets them again with its payload. So that both see the same and a hand-out needs no git, what only the
repository or the moment can tell (`of_commit`, `of_merge_request` ...) is stored in `Pipeline.predefined` and stands
over what follows from the other fields. Called by `remuda.cell.pipelines` and `core.payload`.
"""

import hashlib
import json
import re
from urllib.parse import urlsplit

from remuda import __version__
from remuda.cell.people import User
from remuda.cell.values import USER_ID, Job, Pipeline, Project, Runner
from remuda.lib.clock import rfc3339
from remuda.model.progress import When
from remuda.pipeline import JobSpec
from remuda.wire.routable import to_base36

GITLAB_VERSION = "18.5.0"
"""The version of GitLab that this cell is like; clients and scripts switch features by it."""
MAX_MESSAGE_BYTES = 100_000
"""Of a longer commit message only the beginning is given: no program can be started with more in one variable."""
MAX_DESCRIPTION = 2700
SOURCE_BRANCH = "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"
TARGET_BRANCH = "CI_MERGE_REQUEST_TARGET_BRANCH_NAME"
OPEN_MERGE_REQUESTS = "CI_OPEN_MERGE_REQUESTS"

_SHORT_TITLE = 100
_GROUPED_BY_HAND = re.compile(r"[\s:]+[0-9]+[\s:/\\]+[0-9]+\s*")
_TIERS = (
    ("development", re.compile(r"dev|review|trunk", re.IGNORECASE)),
    ("testing", re.compile(r"te?st|int|acce?pt|qa|qc|control|quality", re.IGNORECASE)),
    ("staging", re.compile(r"sta?g|mode?l|pre|demo|non", re.IGNORECASE)),
    ("production", re.compile(r"pro?d|live", re.IGNORECASE)),
)


def of_pipeline(pipeline: Pipeline, project: Project, public_url: str) -> dict[str, str]:
    """What all jobs of a pipeline have. Of one that is not stored yet, without the numbers that the store gives."""
    base = public_url.rstrip("/")
    project_url = f"{base}/{project.path}"
    of_request = pipeline.merge_request_iid is not None
    ref = pipeline.predefined.get(SOURCE_BRANCH, pipeline.ref) if of_request else pipeline.ref
    values = {
        "CI": "true",
        "GITLAB_CI": "true",
        **_of_server(base),
        **_of_project(project, project_url),
        "CI_CONFIG_PATH": ".gitlab-ci.yml" if pipeline.is_child else pipeline.file,
        "CI_PIPELINE_SOURCE": pipeline.source,
        "CI_PIPELINE_CREATED_AT": rfc3339(pipeline.created_at),
        "CI_COMMIT_SHA": pipeline.sha,
        "CI_COMMIT_SHORT_SHA": pipeline.sha[:8],
        "CI_COMMIT_BEFORE_SHA": pipeline.before_sha,
        "CI_COMMIT_REF_NAME": ref,
        "CI_COMMIT_REF_SLUG": slug(ref),
        "CI_COMMIT_REF_PROTECTED": _word(pipeline.protected),
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
        values["CI_PIPELINE_URL"] = f"{project_url}/-/pipelines/{pipeline.id}"
    return {**values, **pipeline.predefined}


def of_user(user: User) -> dict[str, str]:
    """Who started a pipeline; the first administrator, who is in every cell, need not be told of."""
    if user.id == USER_ID:
        return {}
    return {"GITLAB_USER_LOGIN": user.username, "GITLAB_USER_NAME": user.name, "GITLAB_USER_EMAIL": user.email}


def of_spec(spec: JobSpec, environment: str = "") -> dict[str, str]:
    """What a job has as soon as it is written; `environment` is the name with its variables expanded."""
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
    """What a job has once a runner has it, beside what its pipeline has."""
    values = {
        **of_spec(spec, job.environment),
        "CI_JOB_ID": str(job.id),
        "CI_JOB_URL": f"{public_url.rstrip('/')}/{project.path}/-/jobs/{job.id}",
        "CI_JOB_STARTED_AT": rfc3339(job.leased_at or job.created_at),
        "CI_JOB_TIMEOUT": str(timeout),
        "CI_RUNNER_ID": str(runner.id),
        "CI_RUNNER_DESCRIPTION": runner.description,
        "CI_RUNNER_TAGS": json.dumps(runner.tags),
    }
    return values | {"CI_JOB_MANUAL": "true"} if job.when is When.MANUAL else values


def of_commit(*, message: str, author: str, committed_at: float) -> dict[str, str]:
    """What a commit says of itself."""
    message = message.strip("\n")
    given = message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    title, _, rest = given.partition("\n")
    return {
        "CI_COMMIT_MESSAGE": given,
        "CI_COMMIT_MESSAGE_IS_TRUNCATED": _word(given != message),
        "CI_COMMIT_TITLE": title,
        # As in GitLab: all of it where the title is too long to be one.
        "CI_COMMIT_DESCRIPTION": rest.strip("\n") if len(title) < _SHORT_TITLE else given,
        "CI_COMMIT_AUTHOR": author,
        "CI_COMMIT_TIMESTAMP": rfc3339(committed_at),
    }


def of_tag(message: str) -> dict[str, str]:
    """What an annotated tag says; empty for a plain one."""
    return {"CI_COMMIT_TAG_MESSAGE": message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")}


def of_merge_request(
    *,
    iid: int,
    project: Project,
    public_url: str,
    source: str,
    target: str,
    default_branch: str,
    base_sha: str = "",
    title: str = "",
    description: str = "",
) -> dict[str, str]:
    """A merge request within the project, its pipeline not merged with the target."""
    url = f"{public_url.rstrip('/')}/{project.path}"
    place = {"PROJECT_ID": str(project.id), "PROJECT_PATH": project.path, "PROJECT_URL": url}
    values = {
        # The cell keeps no merge requests, so the number in the project is the only one.
        "ID": str(iid),
        "IID": str(iid),
        "REF_PATH": f"refs/merge-requests/{iid}/head",
        "EVENT_TYPE": "detached",
        "TITLE": title,
        "DESCRIPTION": description[:MAX_DESCRIPTION],
        "DESCRIPTION_IS_TRUNCATED": _word(len(description) > MAX_DESCRIPTION),
        "DRAFT": _word(title.lower().startswith(("draft:", "[draft]", "(draft)"))),
        **place,
        **{f"SOURCE_{name}": value for name, value in place.items()},
        "SOURCE_BRANCH_NAME": source,
        "SOURCE_BRANCH_PROTECTED": _word(source == default_branch),
        # Empty unless the pipeline is of the merged result, as in GitLab.
        "SOURCE_BRANCH_SHA": "",
        "TARGET_BRANCH_NAME": target,
        "TARGET_BRANCH_PROTECTED": _word(target == default_branch),
        "TARGET_BRANCH_SHA": "",
        "DIFF_BASE_SHA": base_sha,
    }
    return {
        **{f"CI_MERGE_REQUEST_{name}": value for name, value in values.items()},
        OPEN_MERGE_REQUESTS: f"{project.path}!{iid}",
    }


def slug(text: str) -> str:
    """Fit for host names: lower case, 63 characters at most, only letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]", "-", text.lower())[:63].strip("-")


def environment_slug(name: str) -> str:
    """Fit for host names with a prefix: 24 characters at most. A name that had to change gets an ending of its own."""
    short = re.sub(r"[^a-z0-9]", "-", name.lower())
    short = re.sub(r"-+", "-", short if short[:1].isalpha() else f"env-{short}")
    if short != name or len(short) > 24:
        short = short[:17].removesuffix("-") + "-" + to_base36(int(hashlib.sha256(name.encode()).hexdigest(), 16))[-6:]
    return short.removesuffix("-")


def tier(environment: str) -> str:
    """The kind of environment that a name suggests."""
    return next((kind for kind, names in _TIERS if names.search(environment)), "other")


def group_name(job: str) -> str:
    """The name that jobs such as `test 1/3` share."""
    found = list(_GROUPED_BY_HAND.finditer(job))
    return job[: found[-1].start()] if found and found[-1].end() == len(job) and found[-1].start() else job


def is_literal(key: str, value: str) -> bool:
    """Whether a `$` in it is no reference: only the address of an environment is written by people."""
    return "$" in value and key != "CI_ENVIRONMENT_URL"


def _of_server(base: str) -> dict[str, str]:
    server = urlsplit(base)
    scheme = server.scheme or "http"
    major, minor, patch = GITLAB_VERSION.split(".")
    return {
        "CI_SERVER_URL": base,
        "CI_SERVER_HOST": server.hostname or "",
        "CI_SERVER_FQDN": server.netloc,
        "CI_SERVER_PORT": str(server.port or (443 if scheme == "https" else 80)),
        "CI_SERVER_PROTOCOL": scheme,
        "CI_SERVER_NAME": "Remuda",
        "CI_SERVER_VERSION": GITLAB_VERSION,
        "CI_SERVER_VERSION_MAJOR": major,
        "CI_SERVER_VERSION_MINOR": minor,
        "CI_SERVER_VERSION_PATCH": patch,
        "CI_SERVER_REVISION": f"remuda-{__version__}",
        "CI_API_V4_URL": f"{base}/api/v4",
    }


def _of_project(project: Project, url: str) -> dict[str, str]:
    namespace, _, name = project.path.rpartition("/")
    return {
        "CI_PROJECT_ID": str(project.id),
        "CI_PROJECT_NAME": name,
        "CI_PROJECT_TITLE": project.name,
        "CI_PROJECT_DESCRIPTION": project.description,
        "CI_PROJECT_PATH": project.path,
        "CI_PROJECT_PATH_SLUG": slug(project.path),
        "CI_PROJECT_NAMESPACE": namespace,
        "CI_PROJECT_NAMESPACE_ID": str(project.namespace_id),
        "CI_PROJECT_NAMESPACE_SLUG": slug(namespace),
        "CI_PROJECT_ROOT_NAMESPACE": namespace.partition("/")[0],
        "CI_PROJECT_URL": url,
        "CI_PROJECT_VISIBILITY": project.visibility,
        "CI_PROJECT_CLASSIFICATION_LABEL": "",
        "CI_DEFAULT_BRANCH": project.default_branch,
    }


def _word(true: bool) -> str:
    return "true" if true else "false"
