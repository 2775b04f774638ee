"""Programs of plugins on this machine: what counts as one, and the search on PATH that both protocols share."""

import os
from collections.abc import Mapping
from pathlib import Path


def is_program(path: Path) -> bool:
    """True for an executable file; a folder is none, although it may be executable."""
    return path.is_file() and os.access(path, os.X_OK)


def path_folders(env: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders of PATH in their order."""
    return [Path(folder).absolute() for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder]


def find_on_path(name: str, env: Mapping[str, str] = os.environ) -> Path | None:
    return next((folder / name for folder in path_folders(env) if is_program(folder / name)), None)
