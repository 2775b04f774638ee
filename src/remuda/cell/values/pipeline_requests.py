"""The request to create a pipeline, made for a push, a user, a schedule or a trigger job."""

from collections.abc import Mapping
from typing import Any

import msgspec

from remuda.cell.values import Job, Pipeline, Project, Schedule


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Selects jobs of a new pipeline by name or stage. All others are left out, as if their rules excluded them."""

    jobs: tuple[str, ...] = ()
    """Job names, or names as written in the file before `parallel` expanded them."""
    stages: tuple[str, ...] = ()
    with_needs: bool = True
    """Also select the jobs that these need, transitively. If False, selected jobs wait only for each other."""


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """The trigger job that requests a downstream pipeline, and the pipeline of that job."""

    job: Job
    pipeline: Pipeline


class ListChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a variable that is a list, such as the labels of a merge request."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def apply(self, names: str) -> str:
        """Return a list of names, separated by commas, after the change."""
        left = [name for name in names.split(",") if name and name not in self.remove]
        return ",".join(dict.fromkeys([*left, *self.add]))


class PipelineRequest(msgspec.Struct, frozen=True, kw_only=True):
    project: Project
    source: str
    """CI_PIPELINE_SOURCE: push, web, api, schedule, trigger, pipeline, parent_pipeline or merge_request_event."""
    origin: str = ""
    """The real source, if the caller set `source` to another value for rules; empty: same as `source`."""
    ref: str
    """Full name: refs/heads/..., refs/tags/... or refs/merge-requests/<iid>/head."""
    sha: str
    before_sha: str = "0" * 40
    variables: Mapping[str, str] = {}
    """Variables of this pipeline. They override those of the file and of the project."""
    file_variables: frozenset[str] = frozenset()
    """Names of `variables` that a job gets as files."""
    inputs: Mapping[str, Any] = {}
    text: str | None = None
    """Text of the pipeline file, of a child pipeline or given by the caller; None: read `file` from the repository."""
    file: str = ".gitlab-ci.yml"
    choice: Choice | None = None
    changes_since: str | None = None
    """The commit that `rules:changes` compares with; None: the default of the source."""
    predefined: Mapping[str, str] = {}
    merge_request_lists: Mapping[str, ListChange] = {}
    """Changes of variables of the merge request that are lists."""
    upstream: Upstream | None = None
    depth: int = 0
    """Number of upstream pipelines, if a job started this one with its token instead of a trigger job."""
    schedule: Schedule | None = None
    """The schedule that runs, with its next run time; stored in the same transaction as the pipeline."""
    due_at: float | None = None
    """The due time of the schedule; None if a person runs it."""
    sees: tuple[str, str] | None = None
    """Ref and commit to store as processed, in the same transaction as the pipeline."""
    user_id: int
    """The user behind the pipeline. Its jobs have the access rights of this user."""
