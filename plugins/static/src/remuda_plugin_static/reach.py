"""Parses addresses of machines, and checks that something accepts connections at an address. Sends nothing."""

import asyncio

PORTS = {"": 22, "ssh": 22, "winrm": 5985, "winrm+https": 5986}
CONNECT_SECONDS = 5.0


def parse_address(address: str, port: int) -> tuple[str, int]:
    """Host and port of `host`, `host:port`, `::1` or `[::1]:22`. `port`: default if the address has none.
    Raises ValueError, which says what is wrong."""
    host, _, own = address.rpartition(":") if address.count(":") == 1 or "]:" in address else (address, "", "")
    if own and not (own.isascii() and own.isdecimal() and 0 < int(own) < 65536):
        raise ValueError(f"the address {address!r} has an invalid port; HOST or HOST:PORT is needed")
    host = host.removeprefix("[").removesuffix("]")
    if not host or any(letter.isspace() or letter in "/[]@" for letter in host):
        raise ValueError(f"the address {address!r} has no host; HOST or HOST:PORT is needed")
    return host, int(own or port)


async def answers(host: str, port: int) -> bool:
    """True if something accepts a connection to `port` of `host` within `CONNECT_SECONDS`."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
    except (OSError, TimeoutError):
        return False
    return True
