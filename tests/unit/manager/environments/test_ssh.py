"""Connections that cannot be made, without a machine."""

import asyncio

import asyncssh
import pytest

from remuda.lib.clock import settle
from remuda.manager.environments.ssh import Address, SshConnection, SshError


async def test_who_waits_for_a_machine_that_is_away_learns_of_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other would wait for the time that a connection may take as often as there are jobs."""
    attempts = 0

    async def connect(*_: object, **__: object) -> None:
        nonlocal attempts
        attempts += 1
        await settle()
        raise ConnectionRefusedError("nobody there")

    monkeypatch.setattr(asyncssh, "connect", connect)
    connection = SshConnection(Address(host="away", identity_file="key", checks_host_key=False))
    found = await asyncio.gather(*(connection.run("true") for _ in range(3)), return_exceptions=True)
    assert [str(one) for one in found] == ["root@away:22 cannot be reached: nobody there"] * 3
    assert attempts == 1
    with pytest.raises(SshError):
        await connection.connect()
    assert attempts == 2
