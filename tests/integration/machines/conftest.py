"""Fixtures for tests of machines behind SSH: a lab with three machines, and environments that use them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from tests.support.machines.machines import Machine, Machines

from remuda.lib.clock import SystemClock
from remuda.manager.environments.machines import MachinesEnvironment
from remuda.manager.environments.remote_machine import RemoteMachine
from remuda.manager.environments.ssh import Address

MakeEnvironment = Callable[..., MachinesEnvironment]


@pytest.fixture
def lab() -> Iterator[Machines]:
    """Three machines. The test's thread joins their network namespace."""
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(3) as machines, machines.enter_network():
        yield machines


@pytest.fixture
async def environment(lab: Machines) -> AsyncIterator[MakeEnvironment]:
    """A function that makes an environment of these machines, by default of all. `more`: fields of Address."""
    async with AsyncExitStack() as stack:

        def make(
            *machines: Machine, capacity: int | None = 2, use_count: int = 0, least_disk_bytes: int = 0, **more: object
        ) -> MachinesEnvironment:
            def make_remote(machine: Machine) -> tuple[RemoteMachine, int | None]:
                address = Address(host=machine.address, identity_file=str(lab.key), host_key=machine.host_key)
                return RemoteMachine(machine.name, replace(address, **more), use_count=use_count), capacity  # type: ignore[arg-type]

            environment = MachinesEnvironment(
                [make_remote(machine) for machine in machines or lab.machines],
                clock=SystemClock(),
                least_disk_bytes=least_disk_bytes,
            )
            stack.push_async_callback(environment.close)
            return environment

        yield make
