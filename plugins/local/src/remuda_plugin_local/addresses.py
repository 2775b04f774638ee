"""Which addresses machines may have. Pure but for `routes`.

Each machine has a link of its own to this host, and this host a route to its one address, so nothing is shared between
machines or groups. The route is the claim: the kernel lets only one be added for an address, and it goes with the
machine. Here are the addresses to try.
"""

import json
import random
import re
import subprocess
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from typing import Any

from remuda.fleeting import PermanentError

LINK_PREFIX = "rl-"
"""How the links to machines are called on this host."""
_TRIES = 200


def checked_network(text: str) -> IPv4Network:
    """PermanentError."""
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise PermanentError(f"network = {text!r}: {error}; a network such as 10.250.0.0/16 is needed") from error
    if network.num_addresses < 8:
        raise PermanentError(f"network = {text!r}: it has room for no machine; /29 or wider is needed")
    return network


def host_address(network: IPv4Network) -> str:
    """This host's, as machines see it."""
    return str(network[1])


def candidates(network: IPv4Network, seed: str) -> tuple[str, ...]:
    """Addresses for a machine, in the order in which it tries them; others begin elsewhere."""
    last = network.num_addresses - 2
    return tuple(str(network[number]) for number in _sample(2, last, seed))


def _sample(first: int, last: int, seed: str) -> list[int]:
    return random.Random(seed).sample(range(first, last + 1), min(_TRIES, last + 1 - first))


_REMOVED = re.compile(r"if[0-9]+")


def clash(network: IPv4Network, rows: Iterable[Mapping[str, Any]]) -> str:
    """Which route of this host, other than to our machines, leads to the same addresses; empty: none."""
    for row in rows:
        to, device = str(row.get("dst", "default")), str(row.get("dev", ""))
        # `ip` writes if7 for a device that was removed while it listed the routes, as that of a machine which ends.
        is_ours = device.startswith(LINK_PREFIX) or _REMOVED.fullmatch(device)
        if to != "default" and not is_ours and network.overlaps(IPv4Network(to, strict=False)):
            return f"{to} dev {device}"
    return ""


def routes() -> list[Mapping[str, Any]]:
    """This host's, as `ip -json` tells them."""
    told = subprocess.run(["ip", "-json", "-4", "route", "show"], capture_output=True, text=True, check=True).stdout
    found: list[Mapping[str, Any]] = json.loads(told or "[]")
    return found
