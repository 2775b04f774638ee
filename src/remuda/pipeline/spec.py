"""The values a pipeline file compiles to.

Nothing is decided here. The cell stores a `Pipeline` as JSON and creates one job per `JobSpec`, hence the
version fields: a reader of a later release can tell what it has before it.

Invariants: names are unique; `stage_index` is the position of `stage` in `Pipeline.stages`; every need that
is not optional names a job of the same pipeline in the same or an earlier stage, and needs form no circle.
"""

from __future__ import annotations

from typing import Literal

import msgspec

When = Literal["on_success", "on_failure", "always", "manual"]
ArtifactsWhen = Literal["on_success", "on_failure", "always"]


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One job that must be done before this one starts."""

    job: str
    artifacts: bool = True
    # An optional need that is not in the pipeline is no mistake and is not waited for.
    optional: bool = False


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a job keeps for later jobs and for people."""

    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    untracked: bool = False
    when: ArtifactsWhen = "on_success"
    name: str = ""
    # As written in the file ("1 week", "never"); empty leaves it to the cell.
    expire_in: str = ""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job, with defaults applied and `parallel` unfolded."""

    version: int = 1
    name: str
    stage: str
    stage_index: int
    # before_script and script in one list: they run in one shell.
    script: tuple[str, ...]
    after_script: tuple[str, ...] = ()
    # The file's variables and the job's own; the job's win.
    variables: dict[str, str] = {}
    # None: wait for all earlier stages. Empty: start at once.
    needs: tuple[Need, ...] | None = None
    artifacts: Artifacts | None = None
    allow_failure: bool = False
    tags: tuple[str, ...] = ()
    when: When = "on_success"
    timeout_seconds: int | None = None
    retry_max: int = 0
    retry_when: tuple[str, ...] = ("always",)
    dependencies: tuple[str, ...] | None = None
    # Where the job stands in the file.
    line: int


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file: its stages with `.pre` and `.post` around them, and its jobs in the order of the file."""

    version: int = 1
    stages: tuple[str, ...]
    variables: dict[str, str]
    jobs: tuple[JobSpec, ...]
