"""The values a pipeline file compiles to.

Nothing is decided here but the form in which a runner is told of artifacts. The cell stores a `Pipeline` as JSON and
creates one job per `JobSpec`, hence the version fields: a reader of a later release can tell what it has before it.
Fields only ever come on top, with defaults, so that what an older release stored is read as well. `image`, `services`,
`cache`, `hooks`, `secrets` and `run` have the form of the runner's payload already.

Invariants: names are unique; `stage_index` is the position of `stage` in `Pipeline.stages`; every need that
is not optional names a job of the same pipeline in the same or an earlier stage, and needs form no circle.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

When = Literal["on_success", "on_failure", "always", "manual", "delayed"]
ArtifactsWhen = Literal["on_success", "on_failure", "always"]


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """One job that must be done before this one starts."""

    job: str
    artifacts: bool = True
    # An optional need that is not in the pipeline is no mistake and is not waited for.
    optional: bool = False


class OutsideNeed(msgspec.Struct, frozen=True, kw_only=True):
    """Artifacts of a job elsewhere: of another project's ref, or of another pipeline. It is not waited for.

    With neither `project` nor `job`, `pipeline` names a project whose latest pipeline's status this job mirrors.
    """

    job: str = ""
    project: str = ""
    ref: str = ""
    pipeline: str = ""
    artifacts: bool = True


# How a runner uploads each type of report, and under which name.
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
    """What a job keeps for later jobs and for people."""

    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    untracked: bool = False
    when: ArtifactsWhen = "on_success"
    name: str = ""
    # As written in the file ("1 week", "never"); empty leaves it to the cell.
    expire_in: str = ""
    # Paths by type of report; coverage reports are under their format.
    reports: dict[str, tuple[str, ...]] = {}
    expose_as: str = ""
    # all, developer, maintainer or none; empty: all.
    access: str = ""

    @property
    def keeps_files(self) -> bool:
        """Whether there is an archive, which is what other jobs download."""
        return bool(self.paths or self.untracked)

    def uploads(self) -> list[dict[str, Any]]:
        """What the runner uploads, in the payload's form: the archive, if there is one, and each report."""
        found: list[dict[str, Any]] = []
        if self.keeps_files:
            archive: dict[str, Any] = {
                "name": self.name or None,
                "untracked": self.untracked,
                "paths": list(self.paths),
                "exclude": list(self.exclude) or None,
                "when": self.when,
                "expire_in": self.expire_in or None,
            }
            found.append({**archive, "artifact_type": "archive", "artifact_format": "zip"})
        for kind, paths in self.reports.items():
            name = _REPORT_NAMES.get(kind, f"gl-{kind.replace('_', '-')}-report.json")
            form = "gzip" if kind in _GZIP else "zip" if kind == "lsif" else "raw"
            upload = {"name": name, "paths": list(paths), "when": "always", "expire_in": self.expire_in or None}
            found.append({**upload, "artifact_type": kind, "artifact_format": form})
        return found


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job deploys to. Texts may hold variables, which the cell expands when it creates the job."""

    name: str
    url: str = ""
    action: str = "start"
    on_stop: str = ""
    auto_stop_in: str = ""
    deployment_tier: str = ""


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A job that starts another pipeline: of another project, or a child from the files in `include`."""

    project: str = ""
    branch: str = ""
    # Each is a map as in the file: {"local": ...}, {"artifact": ..., "job": ...} or {"project": ..., "file": ...}.
    include: tuple[dict[str, Any], ...] = ()
    # Empty: done once the other pipeline exists. depend: wait for it. mirror: wait, and take over its status.
    strategy: str = ""
    forward_yaml_variables: bool = True
    forward_pipeline_variables: bool = False
    inputs: dict[str, Any] = {}


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job, with defaults applied, rules judged and `parallel` unfolded."""

    version: int = 1
    name: str
    stage: str
    stage_index: int
    # before_script and script in one list: they run in one shell. Empty for a trigger and for `run`.
    script: tuple[str, ...]
    after_script: tuple[str, ...] = ()
    # The file's variables and the job's own; the job's win, and over them those of the rule that took it in.
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
    # None: the artifacts of all earlier stages, or of the needs.
    dependencies: tuple[str, ...] | None = None
    # Where the job stands in the file.
    line: int
    file: str = ""
    # The name before `parallel` unfolded it, if that differs.
    written_name: str = ""
    # Names among `variables` whose values are not expanded.
    raw_variables: tuple[str, ...] = ()
    image: dict[str, Any] | None = None
    services: tuple[dict[str, Any], ...] = ()
    cache: tuple[dict[str, Any], ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    run: tuple[dict[str, Any], ...] = ()
    outside_needs: tuple[OutsideNeed, ...] = ()
    # A failure with one of these codes is allowed even where `allow_failure` is false.
    allow_failure_exit_codes: tuple[int, ...] = ()
    retry_exit_codes: tuple[int, ...] = ()
    start_in_seconds: int | None = None
    manual_confirmation: str = ""
    interruptible: bool = False
    resource_group: str = ""
    environment: Environment | None = None
    # A regular expression between slashes.
    coverage: str = ""
    release: dict[str, Any] | None = None
    secrets: dict[str, dict[str, Any]] = {}
    id_tokens: dict[str, dict[str, Any]] = {}
    trigger: Trigger | None = None
    # None: not a job whose files are published as a site.
    pages: dict[str, Any] | None = None
    # The rule that took it in, such as "rule 2 (line 14)"; empty for a job without rules.
    rule: str = ""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the file that is not in the pipeline, and why not."""

    name: str
    reason: str
    # Where the job stands in the file.
    line: int
    file: str = ""


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file: its stages with `.pre` and `.post` around them, and its jobs in the order of the file."""

    version: int = 1
    stages: tuple[str, ...]
    variables: dict[str, str]
    jobs: tuple[JobSpec, ...]
    raw_variables: tuple[str, ...] = ()
    # From `workflow`; empty: the cell's own.
    name: str = ""
    # none, conservative or interruptible.
    cancel_on_new_commit: str = "conservative"
    # none or all.
    cancel_on_job_failure: str = "none"
    # Why there is no pipeline although the file is right; None: there is one.
    skipped: str | None = None
    # The jobs that their own rules leave out; a parallel job once, unless its parts have different reasons.
    left_out: tuple[LeftOut, ...] = ()
