from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.fleeting import PermanentError
from remuda_plugin_local.addresses import candidates, clash, host_address, parse_network

networks = st.builds(
    lambda number, length: IPv4Network((number, length), strict=False), st.integers(0, 2**32 - 1), st.integers(8, 29)
)


@given(networks, st.text())
def test_candidates_are_usable_addresses_of_the_network(network: IPv4Network, seed: str) -> None:
    texts = candidates(network, seed)
    assert len(set(texts)) == len(texts) > 0
    reserved = {network.network_address, network.broadcast_address, IPv4Address(host_address(network))}
    assert all(address in network and address not in reserved for address in map(IPv4Address, texts))
    assert candidates(network, seed) == texts


def test_candidates_of_a_small_network_are_all_its_addresses() -> None:
    network = IPv4Network("10.1.0.0/28")
    assert host_address(network) == "10.1.0.1"
    assert sorted(candidates(network, "x"), key=IPv4Address) == [f"10.1.0.{number}" for number in range(2, 15)]


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "10.0.0.1/24", "fd00::/64", "10.0.0.0/30"])
def test_invalid_networks_are_refused(text: str) -> None:
    with pytest.raises(PermanentError, match="network = "):
        parse_network(text)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"dst": "default", "dev": "eth0"}, ""),
        ({"dst": "192.0.2.0/24", "dev": "eth0"}, ""),
        ({"dst": "10.250.3.0/24", "dev": "br0"}, "10.250.3.0/24 dev br0"),
        ({"dst": "10.0.0.0/8", "dev": "vpn0"}, "10.0.0.0/8 dev vpn0"),
        ({"dst": "10.250.0.9", "dev": "veth1"}, "10.250.0.9 dev veth1"),
        ({"dst": "10.250.0.9", "dev": "rl-1a2b3c4d"}, ""),
        ({"dst": "10.250.9.9"}, "10.250.9.9 dev "),
        ({"dst": "10.250.53.226", "dev": "if584"}, ""),
    ],
)
def test_routes_that_clash(row: dict[str, str], expected: str) -> None:
    assert clash(IPv4Network("10.250.0.0/16"), [row]) == expected
