"""Collects predefined variables (such as CI_PROJECT_PATH) with values that the job's author cannot change. Pure code.

The payload's `variables` cannot be trusted, because a job may override predefined names there. A Remuda cell sends its
own values of overridden names (`remuda.predefined`); for other servers the rest of the payload is used."""

import re
from typing import Any

from remuda.manager.compile.step_entries import Setting, path_of_project
from remuda.manager.compile.variables import Variables
from remuda.manager.config.values import RunnerConfig
from remuda.pipeline.predefined_variables import is_predefined, of_project, of_server, slug, word
from remuda.wire.runner_api import JobPayload, Variable
from remuda.wire.runner_server import api_root

_SHORT = 8
_SERVERS_OWN = re.compile(r"(CI_(COMMIT|JOB|MERGE_REQUEST|PIPELINE|PROJECT|RUNNER|SERVER)|GITLAB_USER)_.*")
"""Names that only a server sets, though not in every job."""


def collect_trusted_variables(payload: JobPayload, setting: Setting, own: dict[str, str]) -> dict[str, str]:
    """Return all predefined variables with values that the job's author cannot change. `own`: those of this runner."""
    overridden = _read_overridden(payload)
    values = _of_payload(payload, setting.runner) if overridden is None else _of_cell(payload, overridden)
    return {name: value for name, value in {**values, **own}.items() if "\0" not in value}


def find_invented(payload: JobPayload) -> list[str]:
    """Return names that look like the server's own variables (such as CI_JOB_...) but were set by the job's author. The
    caller makes them empty in texts of the runner's configuration. Empty list if the server is not a Remuda cell."""
    overridden = _read_overridden(payload) or {}
    return [name for name, value in overridden.items() if value is None and _SERVERS_OWN.fullmatch(name)]


def _read_overridden(payload: JobPayload) -> dict[str, str | None] | None:
    """Return predefined variables that the job overrides, with the cell's values (None: none); None without a cell."""
    overridden: Any = payload.remuda.get("predefined") if isinstance(payload.remuda, dict) else None
    return overridden if isinstance(overridden, dict) else None


def _of_cell(payload: JobPayload, overridden: dict[str, str | None]) -> dict[str, str]:
    trusted = [
        variable
        for variable in payload.variables
        if is_predefined(variable.key) and not variable.file and variable.key not in overridden
    ]
    trusted += [Variable(key=key, value=value, raw=True) for key, value in overridden.items() if value is not None]
    return {variable.key: variable.value for variable in Variables(trusted).expand_all()}


def _of_payload(payload: JobPayload, runner: RunnerConfig) -> dict[str, str]:
    """Return predefined variables from the payload, but not from its `variables`, which the job's author can change."""
    job, git = payload.job_info, payload.git_info
    server, path = api_root(runner.url), path_of_project(payload, runner)
    title = job.project_name or path.rpartition("/")[2]
    project = of_project(path=path, url=f"{server}/{path}", number=job.project_id, title=title)
    del project["CI_PROJECT_VISIBILITY"]
    values = {
        "CI": "true",
        "GITLAB_CI": "true",
        **of_server(server),
        **project,
        "CI_JOB_ID": str(payload.id),
        "CI_JOB_NAME": job.name,
        "CI_JOB_NAME_SLUG": slug(job.name),
        "CI_JOB_STAGE": job.stage,
        "CI_JOB_URL": f"{server}/{path}/-/jobs/{payload.id}",
        "CI_JOB_TOKEN": payload.token,
        "CI_REPOSITORY_URL": git.repo_url,
        "CI_COMMIT_SHA": git.sha,
        "CI_COMMIT_SHORT_SHA": git.sha[:_SHORT],
        "CI_COMMIT_BEFORE_SHA": git.before_sha,
    }
    if not git.ref.startswith("refs/"):  # else it is a merge request, whose branch is unknown
        values |= {"CI_COMMIT_REF_NAME": git.ref, "CI_COMMIT_REF_SLUG": slug(git.ref)}
        values["CI_COMMIT_TAG" if git.ref_type == "tag" else "CI_COMMIT_BRANCH"] = git.ref
    if git.protected is not None:
        values["CI_COMMIT_REF_PROTECTED"] = word(git.protected)
    if job.pipeline_id:
        values["CI_PIPELINE_ID"] = str(job.pipeline_id)
        values["CI_PIPELINE_URL"] = f"{server}/{path}/-/pipelines/{job.pipeline_id}"
    if job.user_id:
        values["GITLAB_USER_ID"] = str(job.user_id)
    return values
