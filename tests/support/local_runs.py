"""Builders for the values the command line shows, and for repositories."""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
            stages=tuple(StageView(name=name, jobs=tuple(found)) for name, found in stages.items()),
        )

    return make


@dataclass
class Repo:
    """A repository of a test's own."""

    folder: Path

    def git(self, *arguments: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        who = {"NAME": "Ann", "EMAIL": "ann@example.org", "DATE": "2026-01-02T03:04:05+00:00"}
        own = {f"GIT_{role}_{fact}": value for role in ("AUTHOR", "COMMITTER") for fact, value in who.items()}
        nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        command = ["git", "-c", "protocol.file.allow=always", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=clean | own | nobody, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def write(self, **files: str) -> None:
        """Write files; `__` in a name is a slash, `_yml` an ending."""
        for name, text in files.items():
            self.put(name.replace("__", "/").replace("_yml", ".yml"), text)

    def put(self, path: str, text: str) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def commit(self, message: str = "Change") -> str:
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def make_repo(tmp_path: Path) -> Callable[..., Repo]:
    """Make a repository with a first commit."""

    def make(name: str = "shop", *, branch: str = "main", **files: str) -> Repo:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        repo = Repo(folder)
        repo.git("init", "--quiet", f"--initial-branch={branch}")
        repo.write(**files)
        repo.commit("First")
        return repo

    return make
