"""Finds the project of the current folder on a cell: a remote of its git repository that points to the cell."""

import os
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

from remuda.lib.exits import BadInputError
from remuda.localrun.sources.git_environment import REPOSITORY_VARIABLES

GIT_SECONDS = 10
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def find_folder_project(url: str, folder: Path | None = None) -> str | None:
    """Return the path of the project on the cell at `url` that a remote of the repository in `folder` (default: the
    current folder) names, first of `origin`; None without such a remote, without a repository and without git."""
    for remote in _remotes(folder):
        if (path := project_in(remote, url)) is not None:
            return path
    return None


def project_in(remote: str, url: str) -> str | None:
    """Return the project's path if a remote's address is a repository of the cell at `url`, else None. Pure."""
    try:
        cell, there = urlsplit(url), urlsplit(remote)
        ports = (_port(cell.scheme, cell.port), _port(there.scheme, there.port))
    except ValueError:
        return None
    if there.scheme not in ("http", "https") or ports[0] != ports[1]:
        return None
    if _host(cell.hostname) != _host(there.hostname):
        return None
    prefix = f"{cell.path.rstrip('/')}/"
    if not there.path.startswith(prefix):
        return None
    path = unquote(there.path).removeprefix(prefix).strip("/").removesuffix(".git")
    return path if "/" in path else None


def _host(name: str | None) -> str:
    return "localhost" if name in LOOPBACK else name or ""


def _port(scheme: str, port: int | None) -> int | None:
    return port or {"http": 80, "https": 443}.get(scheme)


def _remotes(folder: Path | None) -> list[str]:
    """Return the addresses of the remotes, those of `origin` first."""
    # Inside a git hook these variables name another repository than that of the folder.
    variables = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    command = ["git", "config", "--get-regexp", r"^remote\..*\.(url|pushurl)$"]
    try:
        result = subprocess.run(
            command, cwd=folder, env=variables, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    pairs = [line.split(" ", 1) for line in result.stdout.splitlines() if " " in line]
    pairs.sort(key=lambda pair: not pair[0].startswith("remote.origin."))
    return [address for _, address in pairs]


def require_project(project: str | None, url: str) -> str:
    """Return the project that `--project` names, or that of the current folder. BadInputError if there is none."""
    found = project or find_folder_project(url)
    if not found:
        raise BadInputError(
            "which project? Give it with -p GROUP/NAME, or call this in a clone with a remote that points to the "
            f"cell at {url}; `remuda project list` lists the projects"
        )
    return found
