"""Lists the keys of a pipeline file: for each kind of map, those that are supported, and those of GitLab that are not.

A test checks `docs/reference/pipeline-keywords.md` against these tables. To add a keyword, move it from `later` to
`works` and read it in `remuda.pipeline.keywords`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from remuda.pipeline.errors import printable, quote

# Comparing two words takes microseconds, and a file may have thousands of names and misspelt words.
_COMPARED_NAMES = 100
_COMPARED_CHARACTERS = 255


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one kind of map: supported ones (`works`), and those of GitLab that are not yet (`later`)."""

    works: tuple[str, ...]
    later: tuple[str, ...] = ()
    no_effect: dict[str, str] = {}
    """Keys that cause a warning, and what does not happen. Those that are not among `works` are not read, either."""
    harmless: dict[str, str] = {}
    """Values of keys in `no_effect` that cause no warning, because they ask for what happens anyway."""
    misplaced: dict[str, str] = {}
    """Keys that GitLab has elsewhere, and where."""


_NO_IDENTITY = "jobs get no login to Google Cloud"
_FILE_ONLY = "only variables of the file have it"

_SHARED = (
    "image",
    "services",
    "before_script",
    "after_script",
    "hooks",
    "cache",
    "artifacts",
    "tags",
    "timeout",
    "retry",
    "interruptible",
    "id_tokens",
)
TOP = Keys(
    works=(
        "stages",
        "default",
        "variables",
        "workflow",
        "include",
        "image",
        "services",
        "cache",
        "before_script",
        "after_script",
    ),
    later=("spec",),
)
"""The pipeline file itself. Every other key at this level is the name of a job."""
DEFAULT = Keys(works=(*_SHARED, "identity"), no_effect={"identity": _NO_IDENTITY})
"""`default`: values for jobs that do not set the keyword."""
JOB = Keys(
    works=(
        "stage",
        "script",
        "run",
        *_SHARED,
        "extends",
        "inherit",
        "variables",
        "rules",
        "only",
        "except",
        "when",
        "start_in",
        "manual_confirmation",
        "allow_failure",
        "needs",
        "dependencies",
        "parallel",
        "resource_group",
        "environment",
        "coverage",
        "release",
        "secrets",
        "trigger",
        "pages",
        "publish",
        "inputs",
        "identity",
        "dast_configuration",
    ),
    no_effect={
        "identity": _NO_IDENTITY,
        "dast_configuration": "GitLab's profiles for DAST do not exist",
        "manual_confirmation": "the job starts without a question",
        "pages": "no site is served; the published folder is kept as artifacts",
        "publish": "no site is served; the folder is kept as artifacts",
    },
    harmless={"pages": "false"},
)
"""A job."""
WORKFLOW = Keys(works=("name", "rules", "auto_cancel"))
"""`workflow`: settings of the whole pipeline."""
AUTO_CANCEL = Keys(works=("on_new_commit", "on_job_failure"))
"""`auto_cancel` of `workflow` or of one of its rules."""
WORKFLOW_RULE = Keys(works=("if", "changes", "exists", "when", "variables", "auto_cancel"))
"""An entry of `workflow:rules`."""
RULE = Keys(
    works=(
        "if",
        "changes",
        "exists",
        "when",
        "start_in",
        "allow_failure",
        "variables",
        "needs",
        "interruptible",
    ),
)
"""An entry of `rules` of a job."""
INCLUDE_RULE = Keys(works=("if", "changes", "exists", "when"))
"""An entry of `rules` of an `include` entry."""
CHANGES = Keys(works=("paths", "regexp", "compare_to"))
"""`changes` of a rule, written as a map."""
EXISTS = Keys(works=("paths", "regexp", "project", "ref"))
"""`exists` of a rule, written as a map."""
ONLY = Keys(
    works=("refs", "variables", "changes", "kubernetes"),
    no_effect={"kubernetes": "the job is added whether or not there is a cluster"},
)
"""`only` or `except` of a job, written as a map."""
INCLUDE = Keys(
    works=(
        "local",
        "project",
        "file",
        "ref",
        "remote",
        "component",
        "template",
        "rules",
        "inputs",
        "integrity",
        "cache",
    ),
)
"""An entry of `include`."""
HEADER = Keys(works=("spec",))
"""The first document of a file that has two documents."""
SPEC = Keys(works=("inputs", "description", "include", "component"))
"""`spec` in the first document of a file."""
SPEC_INCLUDE = Keys(works=("local", "project", "file", "ref", "remote", "integrity", "cache"))
"""An entry of `spec:include`: a file with inputs."""
INPUT_FILE = Keys(works=("inputs",))
"""A file that `spec:include` names."""
INPUT = Keys(works=("default", "description", "type", "options", "regex", "rules"))
"""An entry of `spec:inputs`: one input of a file."""
JOB_INPUT = Keys(works=("default", "description", "type", "options", "regex"))
"""An entry of `inputs` of a job."""
INPUT_RULE = Keys(works=("if", "options", "default"))
"""An entry of `rules` of an input."""
IMAGE = Keys(works=("name", "entrypoint", "pull_policy", "docker", "kubernetes"))
"""`image`, written as a map."""
IMAGE_DOCKER = Keys(works=("platform", "user"))
"""`docker` of `image` or of a service."""
IMAGE_KUBERNETES = Keys(works=("user",))
"""`kubernetes` of `image` or of a service. Accepted without effect."""
SERVICE = Keys(
    works=("name", "alias", "entrypoint", "command", "variables", "pull_policy", "docker", "kubernetes"),
)
"""An entry of `services`, written as a map."""
CACHE = Keys(works=("key", "paths", "untracked", "policy", "when", "fallback_keys", "unprotect"))
"""An entry of `cache`."""
CACHE_KEY = Keys(works=("files", "files_commits", "prefix"))
"""`cache:key`, written as a map."""
HOOKS = Keys(works=("pre_get_sources_script", "post_get_sources_script"))
"""`hooks` of a job."""
ARTIFACTS = Keys(
    works=(
        "paths",
        "exclude",
        "untracked",
        "when",
        "name",
        "expire_in",
        "reports",
        "expose_as",
        "access",
        "public",
    ),
    no_effect={
        "expose_as": "the artifacts are not shown in merge requests",
        "access": "every reporter of the project can read the artifacts",
        "public": "every reporter of the project can read the artifacts",
    },
    harmless={"access": "all", "public": "true"},
)
"""`artifacts` of a job."""
REPORTS = Keys(
    works=(
        "junit",
        "dotenv",
        "coverage_report",
        "codequality",
        "annotations",
        "metrics",
        "terraform",
        "accessibility",
        "performance",
        "browser_performance",
        "load_performance",
        "lsif",
        "cyclonedx",
        "sast",
        "sarif",
        "secret_detection",
        "dependency_scanning",
        "container_scanning",
        "cluster_image_scanning",
        "dast",
        "license_scanning",
        "api_fuzzing",
        "coverage_fuzzing",
        "requirements",
        "requirements_v2",
        "repository_xray",
    ),
)
"""`artifacts:reports`."""
COVERAGE_REPORT = Keys(works=("coverage_format", "path"))
"""`artifacts:reports:coverage_report`."""
RETRY = Keys(works=("max", "when", "exit_codes"))
"""`retry`, written as a map."""
NEED = Keys(works=("job", "artifacts", "optional", "parallel", "pipeline", "project", "ref"))
"""An entry of `needs`, written as a map."""
VARIABLE = Keys(works=("value", "description", "options", "expand"))
"""An entry of `variables` of the file, written as a map."""
JOB_VARIABLE = Keys(works=("value", "expand"), misplaced={"description": _FILE_ONLY, "options": _FILE_ONLY})
"""An entry of `variables` of a job, written as a map. Variables of rules and services cannot be maps."""
ALLOW_FAILURE = Keys(works=("exit_codes",))
"""`allow_failure`, written as a map."""
PARALLEL = Keys(works=("matrix",))
"""`parallel`, written as a map."""
INHERIT = Keys(works=("default", "variables"))
"""`inherit` of a job."""
ENVIRONMENT = Keys(
    works=("name", "url", "on_stop", "action", "auto_stop_in", "deployment_tier", "kubernetes"),
    no_effect={"kubernetes": "nothing is deployed to or shown from Kubernetes"},
)
"""`environment` of a job, written as a map."""
RELEASE = Keys(works=("tag_name", "tag_message", "name", "description", "ref", "milestones", "released_at", "assets"))
"""`release` of a job."""
ASSETS = Keys(works=("links",))
"""`release:assets`."""
LINK = Keys(works=("name", "url", "filepath", "link_type"))
"""An entry of `release:assets:links`."""
SECRET = Keys(
    works=(
        "vault",
        "gcp_secret_manager",
        "azure_key_vault",
        "aws_secrets_manager",
        "gitlab_secrets_manager",
        "akeyless",
        "file",
        "token",
    ),
)
"""An entry of `secrets` of a job."""
ID_TOKEN = Keys(works=("aud",))
"""An entry of `id_tokens`."""
TRIGGER = Keys(works=("project", "branch", "include", "strategy", "forward", "inputs"))
"""`trigger` of a job, written as a map."""
TRIGGER_INCLUDE = Keys(
    works=(
        "local",
        "artifact",
        "job",
        "project",
        "file",
        "ref",
        "template",
        "component",
        "remote",
        "integrity",
        "inputs",
    )
)
"""An entry of `trigger:include`."""
FORWARD = Keys(works=("yaml_variables", "pipeline_variables"))
"""`trigger:forward`."""
STEP = Keys(
    works=("name", "step", "func", "script", "inputs", "env"),
    misplaced={
        "action": "call the action runner, step: {git: {url: gitlab.com/components/action-runner, "
        'rev: main}}, with the inputs "action" and "inputs"'
    },
)
"""An entry of `run` of a job."""
PAGES = Keys(works=("publish", "path_prefix", "expire_in"))
"""`pages` of a job, written as a map."""
INPUT_TYPES = ("string", "number", "boolean", "array")

# Values of `retry:when`: all failure reasons of GitLab, which takes each of them, though jobs that failed for some are
# never retried.
RETRY_WHEN = (
    "always",
    "unknown_failure",
    "script_failure",
    "api_failure",
    "stuck_or_timeout_failure",
    "stuck_pending_with_matching_runners",
    "stuck_pending_no_matching_runners",
    "no_updates_running",
    "no_updates_canceling",
    "server_timeout_running",
    "server_timeout_canceling",
    "runner_system_failure",
    "runner_configuration_error",
    "runner_external_dependency_failure",
    "runner_interrupted",
    "runner_provisioning_timeout",
    "runner_unsupported",
    "image_pull_failure",
    "stale_schedule",
    "job_execution_timeout",
    "archived_failure",
    "unmet_prerequisites",
    "scheduler_failure",
    "data_integrity_failure",
    "missing_dependency_failure",
    "trace_size_exceeded",
    "forward_deployment_failure",
    "failed_outdated_deployment_job",
    "environment_creation_failure",
    "deployment_rejected",
    "protected_environment_failure",
    "job_execution_server_timeout",
    "job_router_failure",
    "job_token_expired",
    "id_token_burned_project_path",
    "secrets_provider_not_found",
    "user_blocked",
    "project_deleted",
    "builds_disabled",
    "ci_quota_exceeded",
    "no_matching_runner",
    "ip_restriction_failure",
    "duo_workflow_not_allowed",
    "pipeline_loop_detected",
    "insufficient_bridge_permissions",
    "insufficient_upstream_permissions",
    "invalid_bridge_trigger",
    "bridge_pipeline_is_child_pipeline",
    "downstream_bridge_project_not_found",
    "upstream_bridge_project_not_found",
    "downstream_pipeline_creation_failed",
    "downstream_project_trigger_resolved_to_empty",
    "reached_max_descendant_pipelines_depth",
    "reached_max_pipeline_hierarchy_size",
    "reached_downstream_pipeline_trigger_rate_limit",
)

NOT_YET = "remove it; `remuda docs pipeline-keywords` lists what works"


def is_near(word: str, name: str) -> bool:
    """True if `word` could be a misspelling of `name`."""
    return bool(nearest(word, (name,)))


def nearest(word: str, names: Iterable[str]) -> str:
    """Return 'did you mean "..."?' with the name most similar to `word`; empty if none is similar or it is too long."""
    if len(word) > _COMPARED_CHARACTERS:
        return ""
    import difflib  # imported only for a file with a mistake

    close = difflib.get_close_matches(word, list(islice(names, _COMPARED_NAMES)), n=1)
    return f"did you mean {quote(close[0])}?" if close else ""


def join_names(names: Sequence[str], limit: int = 20) -> str:
    return ", ".join(map(printable, names[:limit])) + (", ..." if len(names) > limit else "")
