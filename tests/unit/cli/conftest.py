"""Builders for the values the command line shows."""

from collections.abc import Callable
from typing import Any

import pytest

from remuda.cli.view import JobView, RunView, StageView

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
