"""Helpers to use a cell through the GitLab API client: create a project, wait for pipelines, read job logs.

Uses python-gitlab, which is not a dependency of Remuda: import this module only in tests."""

import re
import time
from typing import Any

import gitlab
from gitlab.v4.objects import Project, ProjectPipeline

from remuda.testing.agent_process import plain_lines
from remuda.testing.lab import ADMIN_TOKEN, Lab, LabError

OVER = frozenset({"success", "failed", "canceled", "skipped"})


def connect(lab: Lab) -> gitlab.Gitlab:
    """API client with administrator rights, which retries while a part of the system restarts."""
    return gitlab.Gitlab(lab.url, private_token=ADMIN_TOKEN, retry_transient_errors=True, timeout=30)


def new_project(lab: Lab, name: str, pipeline_file: str, **files: str) -> Project:
    """Create a project with one commit of .gitlab-ci.yml and other `files`, which starts the first pipeline."""
    project = connect(lab).projects.create({"name": name})
    actions = [{"action": "create", "file_path": path, "content": text} for path, text in files.items()]
    actions.append({"action": "create", "file_path": ".gitlab-ci.yml", "content": pipeline_file})
    project.commits.create({"branch": "main", "commit_message": "First commit", "actions": actions})
    return project


def first_pipeline(lab: Lab, project: Project, seconds: float = 30) -> ProjectPipeline:
    """Wait for the pipeline of the project's first commit. Raises LabError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (pipelines := _patiently(lambda: project.pipelines.list(get_all=False))):
        if time.monotonic() > deadline:
            raise LabError(f"no pipeline within {seconds} s\n{lab.cell.tail()}")
        time.sleep(0.1)
    newest: ProjectPipeline = pipelines[0]
    return newest


def wait_for(lab: Lab, pipeline: ProjectPipeline, seconds: float = 90) -> str:
    """Wait until the pipeline has ended, and return its status. Raises LabError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        _patiently(pipeline.refresh)
        if pipeline.status in OVER:
            return str(pipeline.status)
        if time.monotonic() > deadline:
            jobs = [(job.id, job.name, job.status) for job in pipeline.jobs.list(get_all=True)]
            raise LabError(
                f"pipeline still {pipeline.status} after {seconds} s: {jobs}\n"
                f"--- cell\n{lab.cell.tail()}\n--- manager\n{lab.manager.tail()}"
            )
        time.sleep(0.1)


def trace_of(project: Project, job_id: int) -> bytes:
    return bytes(project.jobs.get(job_id).trace())


def output_of(trace: bytes) -> bytes:
    """Output of the job's commands, without line headers and lines of the agent; split lines are joined."""
    return b"".join(line + b"\n" for line in plain_lines(trace, b"01O"))


def script_output(trace: bytes) -> bytes:
    """Output of the job's script only: the lines between its section marks."""
    start, end = (mark.start() for mark in re.finditer(rb"[:.]step_script\r", trace))
    return output_of(trace[trace.index(b"\n", start) + 1 : trace.rindex(b"\n", start, end) + 1])


def _patiently(call: Any, seconds: float = 30) -> Any:
    """Return the result of `call`. Repeats a failing call for up to `seconds`, because the cell may be restarting."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (gitlab.GitlabError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
