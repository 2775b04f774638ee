"""Which runners share an environment."""

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


def test_runners_with_equal_places_share() -> None:
    shell, docker = RunnerConfig(executor="shell", token="a"), RunnerConfig(executor="docker", token="b")
    assert identity(shell) == identity(docker) == "local"
    ssh = [RunnerConfig(executor="ssh", token=token, ssh=SshConfig(host="one")) for token in "ab"]
    assert identity(ssh[0]) == identity(ssh[1])
    assert identity(ssh[0]) != identity(RunnerConfig(executor="ssh", ssh=SshConfig(host="two")))
    listed = RunnerConfig(executor="instance", remuda=RemudaConfig(machines=(MachineEntry(host="one"),)))
    assert identity(listed) not in (identity(ssh[0]), "local")


def test_machines_that_are_created_are_one_runners_own_whatever_its_token() -> None:
    one = RunnerConfig(executor="instance", name="builder", url="https://a.example", token="glrt-first")
    assert identity(one) == identity(replace(one, token="glrt-second", limit=3))
    assert len({identity(one), identity(replace(one, name="x")), identity(replace(one, url="https://b.example"))}) == 3
    assert identity(replace(one, id=7)) == identity(replace(one, id=7, name="renamed"))


def test_every_executor_has_a_kind() -> None:
    from remuda.manager.config.values import EXECUTORS

    assert set(KIND_OF_EXECUTOR) == set(EXECUTORS)


async def test_an_environment_is_made_once_and_closed_when_nobody_uses_it(tmp_path: Path) -> None:
    made: list[FakeEnvironment] = []

    def make(_: RunnerConfig, around: EnvironmentContext) -> Environment:
        made.append(FakeEnvironment(tmp_path))
        return made[-1]

    environments = Environments(make, identity, EnvironmentContext(folder=tmp_path))
    local, other = RunnerConfig(executor="shell"), RunnerConfig(executor="ssh", ssh=SshConfig(host="one"))
    first, second = environments.of(local), environments.of(other)
    assert environments.of(local) is first
    left: list[Environment] = []
    async with asyncio.TaskGroup() as tasks:
        environments.end_unused([second], starter(tasks), left.append)
        assert (list(environments), left) == ([second], [first])
    assert environments.of(local) is not first
    await environments.close()
    assert not list(environments)
    await asyncio.gather(*(one.remove() for one in made))


def starter(tasks: asyncio.TaskGroup) -> Callable[[str, Callable[[], Awaitable[None]]], asyncio.Task[None]]:
    """As the supervisor: what fails is begun anew."""
    return lambda name, work: tasks.create_task(restart_on_failure(name, work, SystemClock()), name=name)


class Lingering(FakeEnvironment):
    """One that takes its time to close, and may fail at that."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.go, self.closed, self.fault = asyncio.Event(), 0, ""

    async def close(self) -> None:
        await self.go.wait()
        self.closed += 1
        if self.fault:
            raise OSError(self.fault)


@pytest.mark.parametrize("fault", ["", "its plugin does not end"])
async def test_what_is_being_closed_is_not_made_again_before_that_is_done(tmp_path: Path, fault: str) -> None:
    """There never are two over the same machines; one that fails to close is left at that, and keeps nobody."""
    made: list[Lingering] = []

    def make(_: RunnerConfig, around: EnvironmentContext) -> Environment:
        made.append(Lingering(tmp_path))
        return made[-1]

    environments = Environments(make, identity, EnvironmentContext(folder=tmp_path))
    local, other = RunnerConfig(executor="shell", name="one"), RunnerConfig(executor="ssh", ssh=SshConfig(host="one"))
    environments.of(local)
    made[0].fault = fault
    async with asyncio.TaskGroup() as tasks:
        environments.end_unused([], starter(tasks), lambda _: None)
        environments.check([other])
        with pytest.raises(ClosingError, match="runner one was removed from the configuration a moment ago"):
            environments.check([other, local])
        with pytest.raises(ClosingError):
            environments.of(local)
        environments.end_unused([], starter(tasks), lambda _: None)
        made[0].go.set()
    again = environments.of(local)
    assert (len(made), made[0].closed, again) == (2, 1, made[1])
    await asyncio.gather(*(one.remove() for one in made))
