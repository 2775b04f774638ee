"""The fields of GitLab's projects and groups that clients set: those that the cell stores and honours, and those that
it does not support (`UNSUPPORTED_OF_PROJECT`, `UNSUPPORTED_OF_GROUP`)."""

from typing import Any

import msgspec

from remuda.cell.core.access.pipeline_variables import ROLES
from remuda.cell.core.pipelines.config_path import check_config_path
from remuda.cell.http.edge.errors import bad_field, bad_parameter, blame_field
from remuda.cell.http.edge.unsupported_fields import Unsupported

MAX_TIMEOUT_SECONDS = 30 * 24 * 3600
MIN_TIMEOUT_SECONDS = 600
MAX_GIT_DEPTH = 1000
MAX_TOPICS = 100
_MAX_TOPIC = 255


class ProjectFields(msgspec.Struct, kw_only=True):
    """Settings of a project that its creation and its change have in common. None: not given."""

    build_timeout: int | None = None
    ci_config_path: str | None = None
    auto_cancel_pending_pipelines: str | None = None
    build_git_strategy: str | None = None
    ci_default_git_depth: int | None = None
    ci_separated_caches: bool | None = None
    keep_latest_artifact: bool | None = None
    lfs_enabled: bool | None = None
    shared_runners_enabled: bool | None = None
    group_runners_enabled: bool | None = None
    ci_pipeline_variables_minimum_override_role: str | None = None
    restrict_user_defined_variables: bool | None = None
    topics: list[str] | str | None = None
    tag_list: list[str] | str | None = None
    """The old name of `topics`."""


_CHOICES = {
    "auto_cancel_pending_pipelines": ("enabled", "disabled"),
    "build_git_strategy": ("fetch", "clone"),
    "ci_pipeline_variables_minimum_override_role": ROLES,
}
_COPIED = (
    "ci_config_path",
    "ci_default_git_depth",
    "ci_separated_caches",
    "keep_latest_artifact",
    "lfs_enabled",
    "shared_runners_enabled",
    "group_runners_enabled",
    "restrict_user_defined_variables",
    *_CHOICES,
)


def read_fields(fields: ProjectFields) -> dict[str, Any]:
    """Return the given settings as fields of `Project`. Raises ApiError 400 for the first one that is not valid."""
    for name, choices in _CHOICES.items():
        if getattr(fields, name) not in (None, *choices):
            raise bad_parameter(f"{name} does not have a valid value: it is one of {', '.join(choices)}")
    timeout, depth = fields.build_timeout, fields.ci_default_git_depth
    if timeout is not None and not MIN_TIMEOUT_SECONDS <= timeout <= MAX_TIMEOUT_SECONDS:
        raise bad_field("build_timeout", f"must be from {MIN_TIMEOUT_SECONDS} to {MAX_TIMEOUT_SECONDS} seconds")
    if depth is not None and not 0 <= depth <= MAX_GIT_DEPTH:
        raise bad_field("ci_default_git_depth", f"must be from 0 (everything) to {MAX_GIT_DEPTH}")
    if fields.ci_config_path:
        with blame_field("ci_config_path"):
            check_config_path(fields.ci_config_path)
    values = {name: getattr(fields, name) for name in _COPIED}
    values["timeout_seconds"] = timeout
    values["topics"] = _read_topics(fields.tag_list if fields.topics is None else fields.topics)
    return {name: value for name, value in values.items() if value is not None}


def _read_topics(given: list[str] | str | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    topics = [topic.strip() for topic in (given.split(",") if isinstance(given, str) else given)]
    if len(topics) > MAX_TOPICS or any(len(topic) > _MAX_TOPIC or not topic.isprintable() for topic in topics):
        raise bad_field("topics", f"must be at most {MAX_TOPICS} names of at most {_MAX_TOPIC} characters")
    return tuple(dict.fromkeys(topic for topic in topics if topic))


_ON, _OFF = (True,), (False,)
_ABSENT = ("enabled", "disabled")
"""GitLab's default for the access level of a feature, and what is true here."""
_FEATURES = (
    "analytics", "container_registry", "environments", "feature_flags", "forking", "infrastructure", "issues",
    "merge_requests", "model_experiments", "model_registry", "monitor", "package_registry", "pages", "releases",
    "requirements", "security_and_compliance", "snippets", "wiki",
)  # fmt: skip
_SWITCHES = ("container_registry", "packages", "service_desk")
_SHOWN_SWITCHES = ("issues", "merge_requests", "snippets", "wiki")
"""Features whose switch is in answers, where it is off: turning one on is not in force, and is told."""

UNSUPPORTED_OF_PROJECT = Unsupported(
    ignored={
        **{f"{name}_access_level": _ABSENT for name in _FEATURES},
        **{f"{name}_enabled": (True, False) for name in _SWITCHES},
        **{f"{name}_enabled": _OFF for name in _SHOWN_SWITCHES},
        "allow_merge_on_skipped_pipeline": _OFF,
        "allow_pipeline_trigger_approve_deployment": _OFF,
        "approvals_before_merge": (0,),
        "auto_devops_deploy_strategy": ("continuous",),
        "auto_devops_enabled": _OFF,
        "autoclose_referenced_issues": (True, False),
        "build_coverage_regex": (),
        "ci_allow_fork_pipelines_to_run_in_parent_project": (True, False),
        "ci_delete_pipelines_in_seconds": (),
        "ci_forward_deployment_enabled": (),
        "ci_forward_deployment_rollback_allowed": (),
        "ci_push_repository_for_job_token_allowed": _OFF,
        "emails_disabled": (True, False),
        "emails_enabled": (True, False),
        "jobs_enabled": _ON,
        "merge_method": ("merge",),
        "merge_pipelines_enabled": _OFF,
        "merge_trains_enabled": _OFF,
        "merge_trains_skip_train_allowed": _OFF,
        "mirror_trigger_builds": _OFF,
        "mr_default_target_self": _OFF,
        "only_allow_merge_if_all_discussions_are_resolved": _OFF,
        "only_allow_merge_if_all_status_checks_passed": _OFF,
        "only_allow_merge_if_pipeline_succeeds": _OFF,
        "only_mirror_protected_branches": _OFF,
        "printing_merge_request_link_enabled": (True, False),
        "remove_source_branch_after_merge": (True, False),
        "repository_object_format": ("sha1",),
        "repository_storage": ("default",),
        "request_access_enabled": (True, False),
        "resolve_outdated_diff_discussions": _OFF,
        "show_default_award_emojis": (True, False),
        "squash_option": ("default_off",),
        "warn_about_potentially_unwanted_characters": (True, False),
    },
    refused={
        "builds_access_level": ("enabled",),
        "ci_restrict_pipeline_cancellation_role": ("developer",),
        "external_authorization_classification_label": (),
        "enforce_auth_checks_on_uploads": _ON,
        "import_url": (),
        "mirror": _OFF,
        "public_builds": _ON,
        "public_jobs": _ON,
        "repository_access_level": ("enabled",),
        "template_name": (),
        "template_project_id": (),
        "use_custom_template": _OFF,
    },
)

UNSUPPORTED_OF_GROUP = Unsupported(
    ignored={
        "auto_devops_enabled": _OFF,
        "emails_disabled": (True, False),
        "emails_enabled": (True, False),
        "lfs_enabled": _ON,
        "math_rendering_limits_enabled": (True, False),
        "lock_math_rendering_limits_enabled": (True, False),
        "mentions_disabled": (True, False),
        "project_creation_level": ("developer",),
        "request_access_enabled": (True, False),
        "shared_runners_setting": ("enabled",),
        "subgroup_creation_level": ("maintainer",),
        "wiki_access_level": _ABSENT,
    },
    refused={
        "default_branch_protection": (2,),
        "ip_restriction_ranges": (),
        "allowed_email_domains_list": (),
        "membership_lock": _OFF,
        "prevent_forking_outside_group": _OFF,
        "prevent_sharing_groups_outside_hierarchy": _OFF,
        "require_two_factor_authentication": _OFF,
        "share_with_group_lock": _OFF,
    },
)
