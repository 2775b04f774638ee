"""Fixtures: a strict GitLab that checks every request of a manager, and fails the test for each violation."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runners.strict_gitlab import StrictGitLab
from tests.support.runners.strict_scenario import Scenario

from remuda.manager.polling import poller
from remuda.manager.polling.features import runner_info
from remuda.testing.environment import FakeEnvironment


@pytest.fixture
async def gitlab() -> AsyncIterator[StrictGitLab]:
    features = runner_info(executor="shell").features
    assert features is not None
    async with StrictGitLab(features=features) as server:
        yield server
        server.check()


@pytest.fixture
async def scenario(tmp_path: Path, gitlab: StrictGitLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scenario]:
    monkeypatch.setattr(poller, "YOUNG_SECONDS", 0.1)  # otherwise every drain takes two seconds
    environment = FakeEnvironment(tmp_path)
    scenario = Scenario(tmp_path, gitlab, environment)
    yield scenario
    await scenario.harness.close()
    await environment.remove()
