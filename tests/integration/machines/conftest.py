"""Real machines, and environments of them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from tests.support.machines.machines import Machine, Machines

from remuda.lib.clock import SystemClock
from remuda.manager.environments.machines import MachinesEnvironment
from remuda.manager.environments.remote_machine import RemoteMachine
from remuda.manager.environments.ssh import Address

Make = Callable[..., MachinesEnvironment]


@pytest.fixture
def lab() -> Iterator[Machines]:
    """Three machines; this thread is in their network."""
    if missing := Machines.missing():
        pytest.skip(missing)
    with Machines(3) as running, running.entered():
        yield running


@pytest.fixture
async def environment(lab: Machines) -> AsyncIterator[Make]:
    """Makes environments of machines, two jobs each; further values are of the address, or of the machine."""
    async with AsyncExitStack() as stack:

        def make(
            *machines: Machine, capacity: int | None = 2, use_count: int = 0, least_disk_bytes: int = 0, **more: object
        ) -> MachinesEnvironment:
            def remote(one: Machine) -> tuple[RemoteMachine, int | None]:
                address = Address(host=one.address, identity_file=str(lab.key), host_key=one.host_key)
                return RemoteMachine(one.name, replace(address, **more), use_count=use_count), capacity  # type: ignore[arg-type]

            made = MachinesEnvironment(
                [remote(one) for one in machines or lab.machines],
                clock=SystemClock(),
                least_disk_bytes=least_disk_bytes,
            )
            stack.push_async_callback(made.close)
            return made

        yield make
