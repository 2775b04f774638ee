"""Finds the settings files. Imports no parser: a run without settings files pays for two or three calls of `stat`."""

import os
from pathlib import Path

REPOSITORY_FILE = ".remuda.toml"
FOUND_SECRETS = ".remuda/secrets.env"
"""The file of secrets in the top folder of a repository, which is used without an option."""
USER_FILE = "settings.toml"


def user_file() -> Path:
    """Return the path of the user's settings file, `~/.config/remuda/settings.toml`; it need not exist."""
    # As platformdirs, whose import takes longer than reading the file.
    base = os.environ.get("XDG_CONFIG_HOME", "").strip() or os.path.expanduser("~/.config")
    return Path(base) / "remuda" / USER_FILE


def project_folder(path: Path) -> Path:
    """Return the top folder of the repository around a folder or file, without asking git; outside of repositories,
    the folder itself."""
    place = Path(os.path.abspath(path))
    folder = place if place.is_dir() else place.parent
    return next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), folder)


def may_change_start(words: tuple[bytes, ...]) -> bool:
    """True if the user's settings file contains one of these words, so that options may have to be known before a
    process starts."""
    try:
        text = user_file().read_bytes()
    except OSError:
        return False
    return any(word in text for word in words)
