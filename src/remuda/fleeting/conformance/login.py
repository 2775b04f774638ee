"""Checks that an SSH login to an instance works and can run a command. Separate, because asyncssh is slow to import."""

import asyncio

import asyncssh

from remuda.fleeting.conformance.values import ONLY_SSH, FailedError, NotedError
from remuda.fleeting.port import ConnectInfo

PAUSE_SECONDS = 1.0
TRY_SECONDS = 30.0
WORDS = "remuda was here"


async def log_in(info: ConnectInfo, *, seconds: float) -> None:
    """Log in to an instance by SSH and run a command. Retries for `seconds` while it is unreachable, then raises
    FailedError; at once if login, key or output is bad. NotedError: not SSH. PermanentError: no address."""
    connector = info.connector
    if connector.protocol not in ("", "ssh"):
        raise NotedError(f"only SSH is tried out, not {connector.protocol}", to_do=ONLY_SSH)
    address = info.address(use_external=not info.internal_addr)
    host, port = _split(address, connector.port or 22)
    cause = "no answer"
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    printed = await _run_echo(info, host, port)
                except (asyncssh.PermissionDenied, asyncssh.KeyImportError) as error:
                    raise FailedError(f"{connector.username or 'nobody'}@{host}:{port}: {error}") from None
                except (OSError, asyncssh.Error, TimeoutError) as error:
                    cause = str(error) or type(error).__name__
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                if printed.strip() != WORDS:
                    raise FailedError(f"a command that prints {WORDS!r} printed {printed[:100]!r}")
                return
    except TimeoutError:
        raise FailedError(f"no login at {host}:{port} within {seconds:.0f} s: {cause}") from None


async def _run_echo(info: ConnectInfo, host: str, port: int) -> str:
    connector = info.connector
    keys = [asyncssh.import_private_key(connector.key)] if connector.key else []
    async with (
        asyncio.timeout(TRY_SECONDS),
        asyncssh.connect(
            host,
            port,
            username=connector.username or (),
            password=connector.password or None,
            client_keys=keys or None,
            known_hosts=None,  # a new machine has an unknown key
            agent_path=None,
            config=None,
        ) as connection,
    ):
        done = await connection.run(f"echo {WORDS}")
        return str(done.stdout)


def _split(address: str, port: int) -> tuple[str, int]:
    host, colon, own_port = address.rpartition(":")
    if colon and own_port.isdigit() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(own_port)
    return address.strip("[]"), port
