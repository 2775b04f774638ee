"""Errors of SSH connections, tested without a server."""

import asyncio

import asyncssh
import pytest

from remuda.lib.clock import settle
from remuda.manager.environments.ssh import Address, SshConnection, SshError, SshLastingError


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (OSError("broken"), SshError("root@away:22 cannot be reached: broken")),
        (
            ConnectionRefusedError(111, "Connect call failed"),
            SshError(
                "root@away:22 cannot be reached: away:22 refused the connection: no server listens there; check host "
                "and port of the machine, and whether its sshd runs"
            ),
        ),
        (asyncssh.PermissionDenied("no"), SshLastingError("root@away:22 does not accept the key id_ed25519")),
    ],
)
async def test_waiting_commands_all_fail(monkeypatch: pytest.MonkeyPatch, cause: Exception, error: SshError) -> None:
    """Otherwise each job would wait for its own connection timeout, one after the other."""
    attempts = 0

    async def connect(*_: object, **__: object) -> None:
        nonlocal attempts
        attempts += 1
        await settle()
        raise cause

    monkeypatch.setattr(asyncssh, "connect", connect)
    connection = SshConnection(Address(host="away", identity_file="id_ed25519", checks_host_key=False))
    results = await asyncio.gather(*(connection.run("true") for _ in range(3)), return_exceptions=True)
    assert [(type(result), str(result)) for result in results] == [(type(error), str(error))] * 3
    assert attempts == 1
    with pytest.raises(SshError):
        await connection.connect()
    assert attempts == 2


async def test_a_retry_does_not_help_an_invalid_host_key() -> None:
    with pytest.raises(SshLastingError, match="host_key cannot be read"):
        await SshConnection(Address(host="away", host_key="nonsense")).connect()
