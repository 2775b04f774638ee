"""Makes the builders of local runs available as fixtures, and hides the settings and caches of this machine's user."""

from pathlib import Path

import pytest
from tests.support.local_runs import a_job, a_run, make_repo

__all__ = ["a_job", "a_run", "make_repo"]


@pytest.fixture(autouse=True)
def config_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's configuration, empty at first."""
    folder = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return folder / "config"
