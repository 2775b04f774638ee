"""Builds the environment for git commands that read the user's repository. Inside a git hook, `REPOSITORY_VARIABLES`
are set; they would point git commands of the platform and of jobs to the hook's repository."""

import os

REPOSITORY_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)


def quiet_environment() -> dict[str, str]:
    """Environment for git: the user's without `REPOSITORY_VARIABLES`. git prints English, refreshes no index, asks no
    password, fetches no missing objects and ignores `git replace`, whose replacements a push would not send."""
    clean = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    return clean | {
        "LC_ALL": "C",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }
