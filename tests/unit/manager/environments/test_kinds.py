"""Creation, sharing and closing of environments."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from remuda.lib.clock import SystemClock
from remuda.manager.config.ssh import MachineEntry, SshConfig
from remuda.manager.config.values import RemudaConfig, RunnerConfig
from remuda.manager.environments.kinds import KIND_OF_EXECUTOR, EnvironmentContext, Environments, identity
from remuda.manager.environments.port import Environment
from remuda.manager.errors import ClosingError
from remuda.manager.process.supervision import restart_on_failure
from remuda.testing.environment import FakeEnvironment


def test_runners_with_the_same_machine_share_an_environment() -> None:
    shell, docker = RunnerConfig(executor="shell", token="a"), RunnerConfig(executor="docker", token="b")
    assert identity(shell) == identity(docker) == "local"
    ssh = [RunnerConfig(executor="ssh", token=token, ssh=SshConfig(host="one")) for token in "ab"]
    assert identity(ssh[0]) == identity(ssh[1])
    assert identity(ssh[0]) != identity(RunnerConfig(executor="ssh", ssh=SshConfig(host="two")))
    listed = RunnerConfig(executor="instance", remuda=RemudaConfig(machines=(MachineEntry(host="one"),)))
    assert identity(listed) not in (identity(ssh[0]), "local")


def test_autoscaled_machines_belong_to_one_runner_independent_of_its_token() -> None:
    runner = RunnerConfig(executor="instance", name="builder", url="https://a.example", token="glrt-first")
    assert identity(runner) == identity(replace(runner, token="glrt-second", limit=3))
    assert (
        len({identity(runner), identity(replace(runner, name="x")), identity(replace(runner, url="https://b.example"))})
        == 3
    )
    assert identity(replace(runner, id=7)) == identity(replace(runner, id=7, name="renamed"))


def test_every_executor_has_a_kind() -> None:
    from remuda.manager.config.values import EXECUTORS

    assert set(KIND_OF_EXECUTOR) == set(EXECUTORS)


async def test_an_environment_is_created_once_and_closed_when_it_is_unused(tmp_path: Path) -> None:
    created: list[FakeEnvironment] = []

    def make(_: RunnerConfig, context: EnvironmentContext) -> Environment:
        created.append(FakeEnvironment(tmp_path))
        return created[-1]

    environments = Environments(make, identity, EnvironmentContext(folder=tmp_path))
    local, other = RunnerConfig(executor="shell"), RunnerConfig(executor="ssh", ssh=SshConfig(host="one"))
    first, second = environments.of(local), environments.of(other)
    assert environments.of(local) is first
    ended: list[Environment] = []
    async with asyncio.TaskGroup() as tasks:
        environments.end_unused([second], task_starter(tasks), ended.append)
        assert (list(environments), ended) == ([second], [first])
    assert environments.of(local) is not first
    await environments.close()
    assert not list(environments)
    await asyncio.gather(*(environment.remove() for environment in created))


def task_starter(tasks: asyncio.TaskGroup) -> Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]:
    """Start tasks like the supervisor, which runs failed ones again."""
    return lambda name, work: tasks.create_task(restart_on_failure(name, work, SystemClock()), name=name)


class SlowlyClosing(FakeEnvironment):
    """Closes when `go` is set, with an error if `fault` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.go, self.closed, self.fault = asyncio.Event(), 0, ""

    async def close(self) -> None:
        await self.go.wait()
        self.closed += 1
        if self.fault:
            raise OSError(self.fault)


@pytest.mark.parametrize("fault", ["", "its plugin does not end"])
async def test_an_environment_is_not_created_again_before_it_is_closed(tmp_path: Path, fault: str) -> None:
    """Two environments never use the same machines. One that fails to close does not block its successor."""
    created: list[SlowlyClosing] = []

    def make(_: RunnerConfig, context: EnvironmentContext) -> Environment:
        created.append(SlowlyClosing(tmp_path))
        return created[-1]

    environments = Environments(make, identity, EnvironmentContext(folder=tmp_path))
    local, other = RunnerConfig(executor="shell", name="one"), RunnerConfig(executor="ssh", ssh=SshConfig(host="one"))
    environments.of(local)
    created[0].fault = fault
    async with asyncio.TaskGroup() as tasks:
        environments.end_unused([], task_starter(tasks), lambda _: None)
        environments.check([other])
        with pytest.raises(ClosingError, match="runner one was removed from the configuration a moment ago"):
            environments.check([other, local])
        with pytest.raises(ClosingError):
            environments.of(local)
        environments.end_unused([], task_starter(tasks), lambda _: None)
        created[0].go.set()
    reopened = environments.of(local)
    assert (len(created), created[0].closed, reopened) == (2, 1, created[1])
    await asyncio.gather(*(environment.remove() for environment in created))
