"""Which keys a pipeline file may hold, and where.

Decided here: for each place in the file, the keys that work, the keys GitLab has that do not work here yet,
and how a key that nobody has is answered. What a key means is decided by the module that reads it. The
tables are also what `docs/reference/pipeline-keywords.md` is checked against.

To make a keyword work: move it from `later` to `works` and read it where its neighbours are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from remuda.pipeline.errors import printable, quoted

# Comparing a word with a name takes microseconds; a file may hold thousands of names and of misspelt words.
_COMPARED_NAMES = 100


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one kind of map in the file."""

    works: tuple[str, ...]
    later: tuple[str, ...] = ()


TOP = Keys(
    works=("stages", "default", "variables", "before_script", "after_script"),
    later=("include", "workflow", "spec", "image", "services", "cache"),
)
DEFAULT = Keys(
    works=("before_script", "after_script", "artifacts", "tags", "timeout", "retry"),
    later=("image", "services", "cache", "interruptible", "hooks", "id_tokens", "identity"),
)
JOB = Keys(
    works=(
        "stage",
        "script",
        "before_script",
        "after_script",
        "variables",
        "needs",
        "artifacts",
        "allow_failure",
        "tags",
        "when",
        "timeout",
        "retry",
        "parallel",
    ),
    later=(
        "image",
        "services",
        "cache",
        "rules",
        "only",
        "except",
        "extends",
        "inherit",
        "inputs",
        "dependencies",
        "environment",
        "trigger",
        "release",
        "secrets",
        "id_tokens",
        "identity",
        "hooks",
        "run",
        "interruptible",
        "resource_group",
        "coverage",
        "start_in",
        "manual_confirmation",
        "pages",
        "publish",
        "dast_configuration",
    ),
)
ARTIFACTS = Keys(
    works=("paths", "exclude", "untracked", "when", "name", "expire_in"),
    later=("reports", "expose_as", "access", "public"),
)
RETRY = Keys(works=("max", "when"), later=("exit_codes",))
NEED = Keys(works=("job", "artifacts", "optional"), later=("pipeline", "project", "ref", "parallel"))
VARIABLE = Keys(works=("value", "description"), later=("options", "expand"))
ALLOW_FAILURE = Keys(works=(), later=("exit_codes",))
PARALLEL = Keys(works=(), later=("matrix",))

# Values of `retry:when`: GitLab's failure reasons for which a new attempt can make sense.
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
)

NOT_YET = "remove it; docs/reference/pipeline-keywords.md lists what works"


def is_near(word: str, name: str) -> bool:
    """Whether the word could be the name misspelt."""
    return bool(nearest(word, (name,)))


def nearest(word: str, names: Iterable[str]) -> str:
    """'did you mean "..."?' for the closest of the names, or nothing."""
    import difflib  # only a file with a mistake pays for it

    close = difflib.get_close_matches(word, list(islice(names, _COMPARED_NAMES)), n=1)
    return f"did you mean {quoted(close[0])}?" if close else ""


def listed(names: Sequence[str], limit: int = 20) -> str:
    """The names for a message, cut when there are very many."""
    return ", ".join(map(printable, names[:limit])) + (", ..." if len(names) > limit else "")
