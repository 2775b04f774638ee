"""A server that checks every request of a manager to the letter, and fails the test for whatever was wrong."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runners.strict_gitlab import StrictGitLab
from tests.support.runners.strict_playbook import Playbook

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
async def book(tmp_path: Path, gitlab: StrictGitLab, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Playbook]:
    monkeypatch.setattr(poller, "YOUNG_SECONDS", 0.1)  # else every drain takes two seconds
    environment = FakeEnvironment(tmp_path)
    playbook = Playbook(tmp_path, gitlab, environment)
    yield playbook
    await playbook.bench.close()
    await environment.remove()
