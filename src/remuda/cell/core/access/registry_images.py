"""Decides which actions on an image of the container registry are allowed, from a member's access level and a token's
scopes. The name of an image begins with the path of its project."""

import re
from collections.abc import Collection, Iterable

from remuda.cell.values.people import Level
from remuda.wire.registry_token import Access

PULL, PUSH, DELETE = "pull", "push", "delete"
BY_JOB = frozenset({PULL, PUSH})
"""Actions of a job on images of its own project."""
MAX_SCOPES = 20
"""Maximum number of scopes of one token; further ones are ignored."""

_NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*", re.ASCII)
_MAX_NAME = 255
_LEVELS = {PULL: Level.REPORTER, PUSH: Level.DEVELOPER, DELETE: Level.DEVELOPER}
_SCOPES = {
    PULL: frozenset({"api", "read_api", "read_registry"}),
    PUSH: frozenset({"api", "write_registry"}),
    DELETE: frozenset({"api"}),
}


def parse_scopes(scopes: Iterable[str]) -> list[Access]:
    """Parse registry scopes such as `repository:acme/shop:pull,push`, at most `MAX_SCOPES`; other forms are ignored."""
    accesses = []
    for scope in [scope for text in scopes for scope in text.split()][:MAX_SCOPES]:
        kind, _, rest = scope.partition(":")
        name, _, actions = rest.rpartition(":")
        if kind == "repository" and len(name) <= _MAX_NAME and _NAME.fullmatch(name):
            accesses.append(Access(name=name, actions=tuple(dict.fromkeys(actions.split(",")))))
    return accesses


def project_paths(image: str) -> list[str]:
    """Return the possible project paths of an image, longest first: `a/b/c` and `a/b` for the image `a/b/c`."""
    parts = image.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 1, -1)]


def actions_of(level: int, token_scopes: Collection[str]) -> frozenset[str]:
    """Return the registry actions (such as `pull`) that both the access level and the token's scopes allow."""
    return frozenset(
        action for action, least in _LEVELS.items() if level >= least and not _SCOPES[action].isdisjoint(token_scopes)
    )


def limit_access(requested: Access, allowed: Collection[str]) -> Access | None:
    """Return the requested access with only the actions in `allowed`; None if no action is left."""
    actions = tuple(action for action in requested.actions if action in allowed)
    return Access(name=requested.name, actions=actions) if actions else None
