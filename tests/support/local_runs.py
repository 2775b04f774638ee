"""Fixtures for tests of `remuda run`: builders of views and repositories."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.git_client import Clone

from remuda.localrun.view import JobView, RunView, StageView

NOW = 1_750_000_000.0


MakeJob = Callable[..., JobView]
MakeRun = Callable[..., RunView]


@pytest.fixture
def a_job() -> MakeJob:
    ids = iter(range(1, 1000))

    def make(name: str = "build", status: str = "success", **fields: Any) -> JobView:
        if status not in ("created", "pending", "skipped", "manual"):
            fields.setdefault("started_at", NOW - 3)
        if status in ("success", "failed", "canceled"):
            fields.setdefault("finished_at", NOW - 1)
        return JobView(**{"id": next(ids), "name": name, "stage": "test", "status": status, **fields})

    return make


@pytest.fixture
def a_run() -> MakeRun:
    def make(*jobs: JobView, status: str = "success", now: float = NOW) -> RunView:
        stages: dict[str, list[JobView]] = {}
        for job in jobs:
            stages.setdefault(job.stage, []).append(job)
        return RunView(
            pipeline_id=7,
            status=status,
            now=now,
            stages=tuple(StageView(name=name, jobs=tuple(views)) for name, views in stages.items()),
        )

    return make


class Repo(Clone):
    """A repository whose commits all have the same date."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-02T03:04:05+00:00"))

    def write(self, **files: str) -> None:
        """Write files. In names, `__` stands for a slash and `_yml` for the suffix .yml."""
        super().write(**{name.replace("__", "/").replace("_yml", ".yml"): text for name, text in files.items()})

    def put(self, path: str, text: str) -> None:
        """Write one file; `path` is used unchanged."""
        super().write(**{path: text})


@pytest.fixture
def make_repo(tmp_path: Path) -> Callable[..., Repo]:
    """Factory of repositories with a first commit."""

    def make(name: str = "shop", *, branch: str = "main", **files: str) -> Repo:
        repo = Repo(tmp_path / name)
        repo.git("init", "--quiet", f"--initial-branch={branch}")
        repo.commit("First", **files)
        return repo

    return make
