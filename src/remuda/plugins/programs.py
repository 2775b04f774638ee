"""Finds programs of plugins on PATH, and checks whether a file is a program. Shared by both plugin protocols."""

import os
from collections.abc import Mapping
from pathlib import Path


def is_program(path: Path) -> bool:
    """True if this is a file that this user can execute. False for a folder, even with the executable bit."""
    return path.is_file() and os.access(path, os.X_OK)


def path_folders(env: Mapping[str, str] = os.environ) -> list[Path]:
    return [Path(folder).absolute() for folder in env.get("PATH", os.defpath).split(os.pathsep) if folder]


def find_on_path(name: str, env: Mapping[str, str] = os.environ) -> Path | None:
    return next((folder / name for folder in path_folders(env) if is_program(folder / name)), None)
