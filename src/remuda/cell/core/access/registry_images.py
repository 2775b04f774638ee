"""Which images of the registry a caller may pull and push.

Decided here: what a registry's scope asks for, which project an image belongs to (its name is the project's path, and
perhaps more), and what a level in that project and the scopes of a personal token allow. Pure;
`remuda.cell.projects.registry` looks the projects up.
"""

import re
from collections.abc import Collection, Iterable

from remuda.cell.values.people import Level
from remuda.wire.registry_token import Access

PULL, PUSH, DELETE = "pull", "push", "delete"
BY_JOB = frozenset({PULL, PUSH})
"""What a job may do with the images of its own project."""
MAX_SCOPES = 20
"""How many images one token may be for."""

_NAME = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*", re.ASCII)
_MAX_NAME = 255
_LEVELS = {PULL: Level.REPORTER, PUSH: Level.DEVELOPER, DELETE: Level.DEVELOPER}
_SCOPES = {
    PULL: frozenset({"api", "read_api", "read_registry"}),
    PUSH: frozenset({"api", "write_registry"}),
    DELETE: frozenset({"api"}),
}


def parse_scopes(scopes: Iterable[str]) -> list[Access]:
    """The images that `repository:name:action,action` asks for; what else a scope may be is left out."""
    found = []
    for scope in [one for text in scopes for one in text.split()][:MAX_SCOPES]:
        kind, _, rest = scope.partition(":")
        name, _, actions = rest.rpartition(":")
        if kind == "repository" and len(name) <= _MAX_NAME and _NAME.fullmatch(name):
            found.append(Access(name=name, actions=tuple(dict.fromkeys(actions.split(",")))))
    return found


def project_paths(image: str) -> list[str]:
    """The paths that the project of an image can have, the longest first; a project is in a namespace."""
    parts = image.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 1, -1)]


def actions_of(level: int, token_scopes: Collection[str]) -> frozenset[str]:
    """What a person with this level in a project may do with its images, with such a token."""
    return frozenset(
        action for action, least in _LEVELS.items() if level >= least and not _SCOPES[action].isdisjoint(token_scopes)
    )


def limit_access(asked: Access, may: Collection[str]) -> Access | None:
    """Of what is asked for, what is allowed; None when that is nothing."""
    actions = tuple(action for action in asked.actions if action in may)
    return Access(name=asked.name, actions=actions) if actions else None
