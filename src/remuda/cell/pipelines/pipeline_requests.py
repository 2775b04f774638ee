"""What is asked for when a pipeline is to be started, whoever asks: a push, a person, a schedule, a trigger job.

Nothing is decided here. `remuda.cell.pipelines.creation` turns a request into a stored pipeline; the HTTP edge, the
schedules and the trigger jobs make requests.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from remuda.cell.values import Job, Pipeline, Project, Schedule


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs of a file are wanted; the others are left out as if their rules had said so."""

    jobs: tuple[str, ...] = ()
    """Names, or names as written before `parallel` unfolded them."""
    stages: tuple[str, ...] = ()
    with_needs: bool = True
    """Also the jobs that these wait for, and so on. Without them, the chosen jobs wait only for each other."""


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The trigger job behind a request, and its pipeline."""

    job: Job
    pipeline: Pipeline


class PipelineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline that somebody wants."""

    project: Project
    source: str
    """push, web, api, schedule, trigger, pipeline, parent_pipeline, merge_request_event: GitLab's words."""
    origin: str = ""
    """What really starts it, where `source` is the caller's word, for rules; empty: the source."""
    ref: str
    """The whole name: refs/heads/..., refs/tags/... or refs/merge-requests/<iid>/head."""
    sha: str
    before_sha: str = "0" * 40
    variables: Mapping[str, str] = {}
    """Given for this pipeline; they win over the file's and the project's."""
    file_variables: frozenset[str] = frozenset()
    """Names among them whose values a job finds in a file."""
    inputs: Mapping[str, Any] = {}
    text: str | None = None
    """The pipeline file itself, for a child; None: the one in the repository at `sha`."""
    file: str = ".gitlab-ci.yml"
    choice: Choice | None = None
    changes_since: str | None = None
    """The commit against which `rules:changes` looks; None: by the source's own rule."""
    predefined: Mapping[str, str] = {}
    upstream: Upstream | None = None
    depth: int = 0
    """How many pipelines led to it, where no trigger job did: a job called with its token."""
    schedule: Schedule | None = None
    """Stored with the pipeline: the schedule that is due, with its next time."""
    due_at: float | None = None
    """The time for which the schedule runs, unless a person runs it."""
    sees: tuple[str, str] | None = None
    """Stored with the pipeline: the ref and commit that count as acted on."""
    user_id: int
    """Who wants it; its jobs may reach what this person may."""


class Starter(Protocol):
    """Whoever starts pipelines."""

    async def start(self, request: PipelineRequest) -> Pipeline:
        """The stored pipeline. InvalidError when there is none to run: mistakes in the file, no file, no jobs left.

        A request with `upstream` that was answered before gets the same pipeline again.
        """
        ...
