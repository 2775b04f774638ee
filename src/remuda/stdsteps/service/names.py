"""By which names a job reaches a service, and which ports tell that it has started. Pure.

The names are GitLab's: the image's name without tag, its slashes once as `__` and once as `-`, and the aliases that are
given besides.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.stdsteps.engine.registry_auth import split_image

PORT_VARIABLE = "HEALTHCHECK_TCP_PORT"
MOST_PORTS = 20
_ALIAS = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,253}[A-Za-z0-9_])?")
_REGISTRY_PORT = re.compile(r"^([^/:]+):[0-9]+(?=/)")


def aliases(image: str, given: Sequence[str]) -> list[str]:
    """All names, those that were given first. A text may hold several, separated by blanks or commas."""
    own = [word for text in given for word in re.split(r"[\s,]+", text)]
    bare = _REGISTRY_PORT.sub(r"\1", split_image(image)[0])
    found = [*own, bare.replace("/", "__"), bare.replace("/", "-")]
    return [one for one in dict.fromkeys(found) if _ALIAS.fullmatch(one)]


def short_name(names: Sequence[str]) -> str:
    """For a container's own name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", names[0])[:40] if names else "service"


def ports(config: Mapping[str, Any], variables: Mapping[str, Any]) -> list[int]:
    """TCP ports of which one that is open means: started. None where nothing is known."""
    chosen = str(variables.get(PORT_VARIABLE) or "")
    if chosen.isdecimal() and 0 < int(chosen) < 65536:
        return [int(chosen)]
    exposed = [str(one).partition("/") for one in config.get("ExposedPorts") or {}]
    return sorted(int(port) for port, _, kind in exposed if port.isdecimal() and kind in ("", "tcp"))[:MOST_PORTS]


def listening(table: str) -> set[int]:
    """Ports that others can connect to, from the kernel's tables /proc/net/tcp and tcp6."""
    found = set()
    for line in table.splitlines():
        words = line.split()
        if len(words) < 4 or words[3] != "0A" or ":" not in words[1]:
            continue
        address, _, port = words[1].partition(":")
        if not _is_loopback(address):
            found.add(int(port, 16))
    return found


def _is_loopback(address: str) -> bool:
    """IPv4 is one word of the machine's order, IPv6 four of them."""
    if len(address) == 8:
        return address.endswith("7F")
    return address == "00000000000000000000000001000000" or (
        address.startswith("0000000000000000FFFF0000") and address.endswith("7F")
    )
