"""Addresses that a machine can use. Pure, except for `routes`.

Each machine has its own link to this host, and this host has a route to its address, so machines and groups share
nothing. The route reserves the address: the kernel accepts only one route to it, which disappears with the machine."""

import json
import random
import re
import subprocess
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from typing import Any

from remuda.fleeting import PermanentError

LINK_PREFIX = "rl-"
"""Prefix of the names of links to machines."""
_TRIES = 200


def parse_network(text: str) -> IPv4Network:
    """Parse the setting `network`. Raises PermanentError if it is no IPv4 network or smaller than /29."""
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise PermanentError(f"network = {text!r}: {error}; a network such as 10.250.0.0/16 is needed") from error
    if network.num_addresses < 8:
        raise PermanentError(f"network = {text!r}: it has room for no machine; /29 or wider is needed")
    return network


def host_address(network: IPv4Network) -> str:
    """Address of this host as machines see it."""
    return str(network[1])


def candidates(network: IPv4Network, seed: str) -> tuple[str, ...]:
    """Addresses for a machine, in the order in which it tries them, shuffled by `seed` (the machine's name)."""
    last = network.num_addresses - 2
    return tuple(str(network[number]) for number in _sample(2, last, seed))


def _sample(first: int, last: int, seed: str) -> list[int]:
    return random.Random(seed).sample(range(first, last + 1), min(_TRIES, last + 1 - first))


_REMOVED = re.compile(r"if[0-9]+")


def clash(network: IPv4Network, rows: Iterable[Mapping[str, Any]]) -> str:
    """The first of the routes `rows` to addresses of `network` that leads to no machine of this plugin, as text; empty
    if there is none."""
    for row in rows:
        to, device = str(row.get("dst", "default")), str(row.get("dev", ""))
        # `ip` writes if7 for a device that is removed while it lists the routes.
        is_ours = device.startswith(LINK_PREFIX) or _REMOVED.fullmatch(device)
        if to != "default" and not is_ours and network.overlaps(IPv4Network(to, strict=False)):
            return f"{to} dev {device}"
    return ""


def routes() -> list[Mapping[str, Any]]:
    """IPv4 routes of this host in the form of `ip -json`."""
    printed = subprocess.run(["ip", "-json", "-4", "route", "show"], capture_output=True, text=True, check=True).stdout
    rows: list[Mapping[str, Any]] = json.loads(printed or "[]")
    return rows
