"""Checks the paths of new projects and groups by GitLab's rules."""

import re

from remuda.cell.errors import InvalidError

RESERVED = frozenset(
    {
        *("api", "admin", "assets", "explore", "groups", "help", "jwt", "machines", "o", "oauth", "projects"),
        *("queue", "runners", "search", "users"),
    }
)
"""First parts of a path that the cell uses itself, now or later."""
MAX_PATH = 255
MAX_PARTS = 20

_PATH_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def check_path(path: str, *, least_parts: int = 2) -> str:
    """Return the full path unchanged; raise InvalidError if it breaks a rule or has fewer than `least_parts` parts."""
    parts = path.split("/")
    if not least_parts <= len(parts) <= MAX_PARTS or len(path) > MAX_PATH:
        form = "namespace/name" if least_parts > 1 else "one or more names with / between them"
        raise InvalidError(f"path must be {form}, at most {MAX_PATH} characters and {MAX_PARTS} parts")
    for part in parts:
        if not _PATH_PART.fullmatch(part):
            raise InvalidError(
                "path can contain only letters, digits, '_', '-' and '.', and cannot start with '-' or '.'"
            )
        if part.endswith(".") or part.lower().endswith((".git", ".atom")):
            raise InvalidError("path cannot end in '.', '.git' or '.atom'")
    if parts[0].lower() in RESERVED:
        raise InvalidError(f"path: {parts[0]} is a reserved name")
    return path
