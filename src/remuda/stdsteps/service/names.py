"""Computes host names and ports of service containers. No I/O. The host names are GitLab's: the configured aliases, and
the image's name without its tag, once with `__` and once with `-` in place of slashes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.stdsteps.engine.registry_auth import split_image

PORT_VARIABLE = "HEALTHCHECK_TCP_PORT"
MOST_PORTS = 20
_ALIAS = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?")
_REGISTRY_PORT = re.compile(r"^([^/:]+):[0-9]+(?=/)")


def aliases(image: str, configured: Sequence[str]) -> list[str]:
    """Return all host names of a service, the configured ones first. A configured text may contain several names,
    separated by spaces or commas."""
    own = [word for text in configured for word in re.split(r"[\s,]+", text)]
    bare = _REGISTRY_PORT.sub(r"\1", split_image(image)[0])
    names = [*own, bare.replace("/", "__"), bare.replace("/", "-")]
    return [name for name in dict.fromkeys(names) if _ALIAS.fullmatch(name)]


def short_name(names: Sequence[str]) -> str:
    """Return the first of a service's host names, in a form that is allowed in a container's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", names[0])[:40] if names else "service"


def ports(config: Mapping[str, Any], variables: Mapping[str, Any]) -> list[int]:
    """Return the TCP ports to check: the service is ready when one of them is open. They are given by
    HEALTHCHECK_TCP_PORT in the job's `variables` or, without it, by the ports that the image exposes (`config`)."""
    chosen = str(variables.get(PORT_VARIABLE) or "")
    if chosen.isdecimal() and 0 < int(chosen) < 65536:
        return [int(chosen)]
    exposed = [str(port).partition("/") for port in config.get("ExposedPorts") or {}]
    return sorted(int(port) for port, _, kind in exposed if port.isdecimal() and kind in ("", "tcp"))[:MOST_PORTS]


def parse_listening(table: str) -> set[int]:
    """Return the listening ports, except on loopback, in the text of /proc/net/tcp and tcp6."""
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
    """True if this is a loopback address in the format of /proc/net/tcp: IPv4 is one 32-bit word in host byte order,
    IPv6 is four of them."""
    if len(address) == 8:
        return address.endswith("7F")
    return address == "00000000000000000000000001000000" or (
        address.startswith("0000000000000000FFFF0000") and address.endswith("7F")
    )
