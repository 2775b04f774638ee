"""The way to a page that it shows above its title: from the outermost group to the project. It is its own module,
because the rendering of templates uses it, and what loads projects needs the rendering."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

Step = tuple[str, str]
"""Address and name of a step of the way."""


def project_trail(project: Mapping[str, Any]) -> Sequence[Step]:
    """The groups above a project, and the project."""
    path, kind = project["path_with_namespace"], project["namespace"]["kind"]
    above, _, name = path.rpartition("/")
    groups = _group_steps(above) if kind == "group" else [(f"/{quote(above)}", above)]
    return [*groups, (f"/{quote(path)}", name)]


def group_trail(group: Mapping[str, Any]) -> Sequence[Step]:
    """The groups above a group, and the group."""
    return _group_steps(group["full_path"])


def _group_steps(path: str) -> list[Step]:
    names = path.split("/")
    return [(f"/groups/{quote('/'.join(names[:count]))}", name) for count, name in enumerate(names, 1)]
