"""Fixtures of the interop tests: a served cell, and runners with the real gitlab-runner that `make interop` builds."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.built_programs import require_built
from tests.support.cells.served_cell import ServedCell
from tests.support.machines.local_groups_fixture import local_groups as local_groups
from tests.support.runners.gitlab_runner import RealRunner

PROGRAM = Path(__file__).parents[2] / "build" / "interop" / "gitlab-runner"
REGISTRATION_TOKEN = "GR1348941interopinteropinter"


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[ServedCell]:
    with ServedCell(tmp_path / "cell", registration_token=REGISTRATION_TOKEN, poll_hold_seconds=50) as served:
        yield served


@pytest.fixture
def new_runner(tmp_path: Path, cell: ServedCell) -> Iterator[Callable[..., RealRunner]]:
    """Factory of runners, which are stopped at the end of the test."""
    require_built(PROGRAM)
    runners: list[RealRunner] = []

    def new(concurrent: int = 4) -> RealRunner:
        folder = tmp_path / f"runner-{len(runners)}"
        runners.append(
            RealRunner(PROGRAM, folder, url=cell.url, registration_token=REGISTRATION_TOKEN, concurrent=concurrent)
        )
        return runners[-1]

    yield new
    for runner in runners:
        runner.stop()
