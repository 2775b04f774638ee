"""Which runners share an environment."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from remuda.manager.config import MachineEntry, RemudaConfig, RunnerConfig, SshConfig
from remuda.manager.environments import KIND_OF_EXECUTOR, Around, Environments, identity
from remuda.manager.ports import Environment
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
    from remuda.manager.config_values import EXECUTORS

    assert set(KIND_OF_EXECUTOR) == set(EXECUTORS)


async def test_an_environment_is_made_once_and_closed_when_nobody_uses_it(tmp_path: Path) -> None:
    made: list[FakeEnvironment] = []

    def make(_: RunnerConfig, around: Around) -> Environment:
        made.append(FakeEnvironment(tmp_path))
        return made[-1]

    environments = Environments(make, identity, Around(folder=tmp_path))
    local, other = RunnerConfig(executor="shell"), RunnerConfig(executor="ssh", ssh=SshConfig(host="one"))
    first, second = environments.of(local), environments.of(other)
    assert environments.of(local) is first
    await environments.close_unused([second])
    assert list(environments) == [second]
    assert environments.of(local) is not first
    await asyncio.gather(*(one.remove() for one in made))
