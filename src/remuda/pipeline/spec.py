"""The values that a pipeline file compiles to: pipeline, job specs and their parts.

The cell stores a `Pipeline` as JSON. Fields are only added, with defaults, so that stored pipelines of older releases
can be read. `image`, `services`, `cache`, `hooks`, `secrets` and `run` have the form in which runners receive them.

Invariants: names are unique; `stage_index` is the position of `stage` in `Pipeline.stages`; every need that is not
optional names a job of the same pipeline in the same or an earlier stage; needs are not circular."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from remuda.pipeline.errors import Mistake

When = Literal["on_success", "on_failure", "always", "manual", "delayed"]
ArtifactsWhen = Literal["on_success", "on_failure", "always"]


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the same pipeline that must be finished before this job starts."""

    job: str
    artifacts: bool = True
    optional: bool = False
    """If the job is not in the pipeline, this is not a mistake, and the need is ignored."""


class OutsideNeed(msgspec.Struct, frozen=True, kw_only=True):
    """A job of another project or pipeline whose artifacts a job takes, without waiting for it. With neither `project`
    nor `job`, `pipeline` is the path of a project, and the job that has the need mirrors the status of that project's
    latest pipeline."""

    job: str = ""
    project: str = ""
    ref: str = ""
    pipeline: str = ""
    artifacts: bool = True
    optional: bool = False
    """The job starts without the artifacts if they do not exist."""


# The format and the file name of each type of report.
_GZIP = frozenset(("junit", "metrics", "dotenv", "cobertura", "jacoco", "cyclonedx", "annotations", "repository_xray"))
_REPORT_NAMES = {
    "junit": "junit.xml",
    "metrics": "metrics.txt",
    "dotenv": ".env",
    "cobertura": "cobertura-coverage.xml",
    "jacoco": "jacoco-coverage.xml",
    "cyclonedx": "gl-sbom.cdx.json",
    "codequality": "gl-code-quality-report.json",
    "terraform": "tfplan.json",
    "lsif": "lsif.json",
    "performance": "performance.json",
    "browser_performance": "browser-performance.json",
    "load_performance": "load-performance.json",
    "requirements": "requirements.json",
    "requirements_v2": "requirements_v2.json",
    "accessibility": "gl-accessibility.json",
    "coverage_fuzzing": "gl-coverage-fuzzing.json",
    "annotations": "gl-annotations.json",
    "repository_xray": "gl-repository-xray.json",
}


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """The files and reports that a job uploads."""

    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    untracked: bool = False
    when: ArtifactsWhen = "on_success"
    name: str = ""
    expire_in: str = ""
    """As written ("1 week", "never"); empty: the cell's default."""
    reports: dict[str, tuple[str, ...]] = {}
    """Paths by type of report; coverage reports are under their format."""
    expose_as: str = ""
    access: str = ""
    """`all`, `developer`, `maintainer` or `none`; empty: `all`."""

    @property
    def keeps_files(self) -> bool:
        """True if the job uploads an archive of files, and not only reports."""
        return bool(self.paths or self.untracked)

    def uploads(self) -> list[dict[str, Any]]:
        """Return what the runner must upload, the archive and each report, in the form in which runners receive it."""
        uploads: list[dict[str, Any]] = []
        if self.keeps_files:
            archive: dict[str, Any] = {
                "name": self.name or None,
                "untracked": self.untracked,
                "paths": list(self.paths),
                "exclude": list(self.exclude) or None,
                "when": self.when,
                "expire_in": self.expire_in or None,
            }
            uploads.append({**archive, "artifact_type": "archive", "artifact_format": "zip"})
        for kind, paths in self.reports.items():
            name = _REPORT_NAMES.get(kind, f"gl-{kind.replace('_', '-')}-report.json")
            form = "gzip" if kind in _GZIP else "zip" if kind == "lsif" else "raw"
            upload = {"name": name, "paths": list(paths), "when": "always", "expire_in": self.expire_in or None}
            uploads.append({**upload, "artifact_type": kind, "artifact_format": form})
        return uploads


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment that a job deploys to, as written in the file. When the cell creates the job, it expands
    variables in `name` only (`Job.environment`); the runner expands those in `url`."""

    name: str
    url: str = ""
    action: str = "start"
    on_stop: str = ""
    auto_stop_in: str = ""
    deployment_tier: str = ""


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline that a trigger job starts: in another project, or a child pipeline from the files in `include`."""

    project: str = ""
    branch: str = ""
    include: tuple[dict[str, Any], ...] = ()
    """Maps as in the file: `{"local": ...}`, `{"artifact": ..., "job": ...}` or `{"project": ..., "file": ...}`."""
    strategy: str = ""
    """Empty: the job ends once the pipeline exists. `depend`: it waits. `mirror`: it waits and copies the status."""
    forward_yaml_variables: bool = True
    forward_pipeline_variables: bool = False
    inputs: dict[str, Any] = {}


class JobInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a job: a value that a user can change when starting or retrying it."""

    type: str = "string"
    """`string`, `number`, `boolean` or `array`."""
    default: Any
    options: tuple[str, ...] | None = None
    regex: str | None = None
    description: str = ""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a compiled pipeline, with defaults applied, rules evaluated and `parallel` expanded."""

    version: int = 1
    name: str
    stage: str
    stage_index: int
    script: tuple[str, ...]
    """`before_script` and `script`, which run in one shell. Empty for `trigger` and `run`."""
    after_script: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    """The file's, over them the job's, over them those of the rule that applied."""
    needs: tuple[Need, ...] | None = None
    """None: wait for all earlier stages. Empty: start at once."""
    artifacts: Artifacts | None = None
    allow_failure: bool = False
    tags: tuple[str, ...] = ()
    when: When = "on_success"
    timeout_seconds: int | None = None
    retry_max: int = 0
    retry_when: tuple[str, ...] = ("always",)
    dependencies: tuple[str, ...] | None = None
    """None: the artifacts of all earlier stages, or of the needs."""
    line: int
    file: str = ""
    written_name: str = ""
    """The name in the file, if this is a part of a parallel job."""
    raw_variables: tuple[str, ...] = ()
    """Names among `variables` whose values are not expanded."""
    image: dict[str, Any] | None = None
    services: tuple[dict[str, Any], ...] = ()
    cache: tuple[dict[str, Any], ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    run: tuple[dict[str, Any], ...] = ()
    outside_needs: tuple[OutsideNeed, ...] = ()
    allow_failure_exit_codes: tuple[int, ...] = ()
    """A failure with one of these codes is allowed even if `allow_failure` is false."""
    retry_exit_codes: tuple[int, ...] = ()
    start_in_seconds: int | None = None
    manual_confirmation: str = ""
    interruptible: bool = False
    resource_group: str = ""
    environment: Environment | None = None
    coverage: str = ""
    """A regular expression between slashes."""
    release: dict[str, Any] | None = None
    secrets: dict[str, dict[str, Any]] = {}
    id_tokens: dict[str, dict[str, Any]] = {}
    trigger: Trigger | None = None
    pages: dict[str, Any] | None = None
    """None: the job does not publish a site."""
    inputs: dict[str, JobInput] = {}
    """For `${{ job.inputs.name }}`, which is replaced when the job is handed out."""
    rule: str = ""
    """The rule that applied, such as "rule 2 (line 14)"; empty for a job without rules."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A job that its rules leave out of the pipeline, and the reason."""

    name: str
    reason: str
    line: int
    file: str = ""


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled pipeline file: its stages, `.pre` first and `.post` last, and its jobs in the order of the file."""

    version: int = 1
    stages: tuple[str, ...]
    variables: dict[str, str]
    jobs: tuple[JobSpec, ...]
    raw_variables: tuple[str, ...] = ()
    name: str = ""
    """From `workflow`; empty: the cell's default."""
    cancel_on_new_commit: str = "conservative"
    """`none`, `conservative` or `interruptible`."""
    cancel_on_job_failure: str = "none"
    """`none` or `all`."""
    skipped: str | None = None
    """Why there is no pipeline although the file is valid; None: there is one."""
    left_out: tuple[LeftOut, ...] = ()
    """The jobs that rules leave out. A parallel job is listed once, unless its parts have different reasons."""
    warnings: tuple[Mistake, ...] = ()
    """Parts of the file that do not do what their author may expect, such as keys without effect."""
