"""Host names and ports of services. Pure.

The names are GitLab's: the image's name without tag, with `__` and with `-` for its slashes, and the
configured aliases.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.stdsteps.engine.registry_auth import split_image

PORT_VARIABLE = "HEALTHCHECK_TCP_PORT"
MOST_PORTS = 20
_ALIAS = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?")
_REGISTRY_PORT = re.compile(r"^([^/:]+):[0-9]+(?=/)")


def aliases(image: str, configured: Sequence[str]) -> list[str]:
    """All names of a service, the configured ones first. A text may hold several, separated by blanks or commas."""
    own = [word for text in configured for word in re.split(r"[\s,]+", text)]
    bare = _REGISTRY_PORT.sub(r"\1", split_image(image)[0])
    names = [*own, bare.replace("/", "__"), bare.replace("/", "-")]
    return [name for name in dict.fromkeys(names) if _ALIAS.fullmatch(name)]


def short_name(names: Sequence[str]) -> str:
    """The first name in a form that a container's name may have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", names[0])[:40] if names else "service"


def ports(config: Mapping[str, Any], variables: Mapping[str, Any]) -> list[int]:
    """TCP ports of a service: it has started when one is open. Empty if none is known."""
    chosen = str(variables.get(PORT_VARIABLE) or "")
    if chosen.isdecimal() and 0 < int(chosen) < 65536:
        return [int(chosen)]
    exposed = [str(port).partition("/") for port in config.get("ExposedPorts") or {}]
    return sorted(int(port) for port, _, kind in exposed if port.isdecimal() and kind in ("", "tcp"))[:MOST_PORTS]


def parse_listening(table: str) -> set[int]:
    """Listening ports, except on loopback, in the kernel's tables /proc/net/tcp and tcp6."""
    open_ports = set()
    for line in table.splitlines():
        words = line.split()
        if len(words) < 4 or words[3] != "0A" or ":" not in words[1]:
            continue
        address, _, port = words[1].partition(":")
        if not _is_loopback(address):
            open_ports.add(int(port, 16))
    return open_ports


def _is_loopback(address: str) -> bool:
    """True if an address of /proc/net/tcp is a loopback address. IPv4 is one 32-bit word in host byte order, IPv6 is
    four."""
    if len(address) == 8:
        return address.endswith("7F")
    return address == "00000000000000000000000001000000" or (
        address.startswith("0000000000000000FFFF0000") and address.endswith("7F")
    )
