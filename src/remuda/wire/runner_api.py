"""Messages of the Runner API as msgspec structs: the requests of a runner and the answers of a cell, exactly as sent.

Unknown fields are ignored, because each runner version adds some. Fields that may be null on the wire are optional
here; code that uses them writes `field or default`."""

from typing import Any, Literal

import msgspec

VERSION = 1
"""Version of the interpretation of these messages; stored in the journal with each payload."""

MANAGER_NAME = "remuda-manager"
"""Name of Remuda's runner manager in its requests (`info.name`)."""

FEATURES = [
    "variables",
    "image",
    "services",
    "artifacts",
    "cache",
    "fallback_cache_keys",
    "shared",
    "upload_multiple_artifacts",
    "upload_raw_artifacts",
    "session",
    "terminal",
    "refspecs",
    "masking",
    "proxy",
    "raw_variables",
    "artifacts_exclude",
    "multi_build_steps",
    "trace_reset",
    "trace_checksum",
    "trace_size",
    "vault_secrets",
    "cancelable",
    "return_exit_code",
    "service_variables",
    "service_multiple_aliases",
    "image_executor_opts",
    "service_executor_opts",
    "cancel_gracefully",
    "native_steps_integration",
    "two_phase_job_commit",
    "job_inputs",
]
"""All feature flags. A runner sends each of them as true or false."""


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base class of request messages and their parts. Fields that have their default value are not sent."""


class RunnerInfo(Message):
    """The description that a runner manager sends of itself."""

    name: str | None = None
    version: str | None = None
    revision: str | None = None
    platform: str | None = None
    architecture: str | None = None
    executor: str | None = None
    shell: str | None = None
    features: dict[str, bool] | None = None
    config: dict[str, Any] | None = None
    labels: dict[str, Any] | None = None


class RegisterRunner(Message):
    """The request body of POST /runners."""

    token: str = ""
    description: str | None = None
    maintenance_note: str | None = None
    maintainer_note: str | None = None
    """The old name of `maintenance_note`."""
    tag_list: str | list[str] | None = None
    run_untagged: bool | None = None
    locked: bool | None = None
    paused: bool | None = None
    active: bool | None = None
    access_level: str | None = None
    maximum_timeout: int | None = None
    info: RunnerInfo | None = None


class CreateRunner(Message):
    """The request body of POST /user/runners."""

    runner_type: str = ""
    group_id: int | None = None
    project_id: int | None = None
    description: str | None = None
    maintenance_note: str | None = None
    paused: bool | None = None
    locked: bool | None = None
    access_level: str | None = None
    run_untagged: bool | None = None
    tag_list: str | list[str] | None = None
    maximum_timeout: int | None = None
    token_expires_at: str | None = None
    organization_id: int | None = None
    """Only in Remuda: short for `organization_ids` with one id."""
    organization_ids: list[int] | None = None
    """Only in Remuda: the organizations that an instance runner serves; None or empty: all of the cell."""


class VerifyRunner(Message):
    """The request body of POST /runners/verify, DELETE /runners and DELETE /runners/managers."""

    token: str = ""
    system_id: str | None = None
    info: RunnerInfo | None = None


class RunnerCredentials(msgspec.Struct, kw_only=True):
    """The answer to the registration, creation and verification of a runner. All fields are always sent."""

    id: int
    token: str
    token_expires_at: str | None = None


class ReportProblem(Message):
    """The request body of POST /api/remuda/v1/runners/problem."""

    token: str = ""
    system_id: str | None = None
    info: RunnerInfo | None = None
    problem: str = ""
    """Why the manager requests no jobs for the runner."""


class RequestJob(Message):
    """The request body of POST /jobs/request."""

    token: str = ""
    system_id: str | None = None
    last_update: str | None = None
    info: RunnerInfo | None = None
    session: dict[str, Any] | None = None
    load: dict[str, Any] | None = None
    """Only between Remuda's manager and a cell: number of jobs that the manager has for all its servers (`running`),
    and free slots (`free`)."""
    hold_seconds: float | None = None
    """Only between Remuda's manager and a cell: how long the manager can wait for the answer without delaying requests
    of its other runners or the removal of a machine. Requests without it are answered at once, unless the settings of
    the cell or the runner say otherwise."""


class Part(msgspec.Struct, kw_only=True):
    """A part of the job payload. Every field is sent, default or not: some clients refuse a payload that lacks one."""


class JobInfo(Part):
    id: int = 0
    name: str = ""
    stage: str = ""
    pipeline_id: int = 0
    project_id: int = 0
    project_name: str = ""
    project_full_path: str = ""
    namespace_id: int = 0
    root_namespace_id: int = 0
    organization_id: int = 0
    instance_id: str = ""
    instance_uuid: str = ""
    user_id: int = 0
    scoped_user_id: int | None = None
    time_in_queue_seconds: float = 0
    project_jobs_running_on_instance_runners_count: str = "0"
    queue_size: int = 0
    queue_depth: int = 0


class GitInfo(Part):
    repo_url: str = ""
    repo_object_format: str = "sha1"
    ref: str = ""
    sha: str = ""
    before_sha: str = ""
    ref_type: Literal["branch", "tag"] = "branch"
    refspecs: list[str] = []
    depth: int = 0
    protected: bool | None = None


class RunnerTimeout(Part):
    timeout: int = 0
    runner_session_url: str | None = None


class Variable(Part):
    key: str
    value: str
    public: bool = False
    file: bool = False
    masked: bool = False
    raw: bool = False


class ScriptStep(Part):
    name: str
    script: list[str] = []
    timeout: int = 0
    when: str = "on_success"
    allow_failure: bool = False


class Artifact(Part):
    name: str | None = None
    untracked: bool | None = None
    paths: list[str] | None = None
    exclude: list[str] | None = None
    when: str | None = None
    expire_in: str | None = None
    artifact_type: str | None = None
    artifact_format: str | None = None


class ArtifactsFile(Part):
    filename: str = ""
    size: int = 0


class Dependency(Part):
    id: int
    name: str = ""
    token: str = ""
    artifacts_file: ArtifactsFile | None = None


class PayloadFeatures(Part):
    trace_sections: bool = False
    failure_reasons: list[str] | None = None
    token_mask_prefixes: list[str] | None = None
    tracing: dict[str, Any] | None = None


class JobPayload(msgspec.Struct, kw_only=True):
    """The answer to POST /jobs/request with status 201. Lists are always present, because old runners require them."""

    id: int
    token: str
    allow_git_fetch: bool = True
    job_info: JobInfo = msgspec.field(default_factory=JobInfo)
    git_info: GitInfo = msgspec.field(default_factory=GitInfo)
    runner_info: RunnerTimeout = msgspec.field(default_factory=RunnerTimeout)
    inputs: list[dict[str, Any]] | None = []
    """Job inputs, each as `{key, value: {type, content, sensitive}}`. Always empty, because pipeline files have no job
    inputs yet."""
    variables: list[Variable] = []
    steps: list[ScriptStep] = []
    hooks: list[dict[str, Any]] | None = []
    image: dict[str, Any] | None = None
    services: list[dict[str, Any]] | None = []
    artifacts: list[Artifact] | None = []
    cache: list[dict[str, Any]] | None = []
    credentials: list[dict[str, Any]] | None = []
    dependencies: list[Dependency] | None = []
    features: PayloadFeatures | None = None
    secrets: dict[str, dict[str, Any]] | None = {}
    """Secrets by the name of the variable that gets the value: a provider with its server, and `file`."""
    policy_options: dict[str, Any] | None = None
    suspend_options: dict[str, Any] | None = None
    run: str | msgspec.UnsetType | None = msgspec.UNSET
    """Steps instead of scripts, as the text of a JSON list. Left out if there are none, because clients refuse null and
    an empty text."""
    remuda: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Fields for Remuda's manager only: `step_policy`, if there is one, and `predefined`: the names of predefined
    variables that users have set, each with the cell's own value or null. Other managers do not get `predefined`."""


class TraceOutput(Message):
    checksum: str | None = None
    bytesize: int | None = None


class UpdateJob(Message):
    """The request body of PUT /jobs/:id."""

    token: str = ""
    info: RunnerInfo | None = None
    state: str = ""
    failure_reason: str | None = None
    checksum: str | None = None
    output: TraceOutput | None = None
    exit_code: int | None = None
    remuda_may_have_begun: bool = False
    """Only between Remuda's manager and a cell: the manager failed the job without a result of the agent (such as when
    the machine or the agent is lost), so it is unknown whether the job's script began."""
    remuda_message: str = ""
    """Only between Remuda's manager and a cell: why the job failed and what to do, for people. Empty if the failure
    reason and the exit code say all."""
    remuda_warnings: list[str] = []
    """Only between Remuda's manager and a cell: what the job asks for and does not get, such as its image on a runner
    without containers. Sent when the job starts."""


class StepResultsIn(Message):
    """The request body of POST /api/remuda/v1/jobs/:id/results: step results in order of `seq`."""

    version: int = 1
    results: list[dict[str, Any]] = []


class StepResultsTaken(msgspec.Struct, kw_only=True):
    """The answer to step results: the next sequence number that the cell expects."""

    version: int = 1
    next_seq: int


def parse_content_range(text: str) -> int | None:
    """Return the start of a Content-Range `<start>-<end>`; None if malformed. `fits_content_range` checks the end."""
    start, dash, end = text.strip().partition("-")
    if not dash or not start.isascii() or not start.isdigit() or not ((end.isascii() and end.isdigit()) or end == ""):
        return None
    return int(start) if len(start) <= 18 else None


def fits_content_range(text: str, length: int) -> bool:
    """True if `length` bytes fit the header `<start>-<end>`, whose end may be one too high, as old runners send it."""
    start = parse_content_range(text)
    end = text.strip().partition("-")[2]
    if start is None or len(end) > 19:
        return False
    return not end or int(end) in (start + length - 1, start + length)


def tags_of(tag_list: str | list[str] | None) -> tuple[str, ...]:
    """Tags of a comma-separated text or a list: trimmed, without duplicates, in their order."""
    parts = tag_list.split(",") if isinstance(tag_list, str) else list(tag_list or ())
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
