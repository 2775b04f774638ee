import pytest

from remuda_plugin_static.reach import parse_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("host", ("host", 22)),
        ("host.example:2222", ("host.example", 2222)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("::1", ("::1", 22)),
        ("[::1]", ("::1", 22)),
        ("[fe80::1]:2222", ("fe80::1", 2222)),
    ],
)
def test_host_and_port_of_addresses(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address, 22) == expected


@pytest.mark.parametrize("address", ["", ":22", "host:0", "host:70000", "host:ssh", "ssh://host", "a b", "u@host"])
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="HOST or HOST:PORT is needed"):
        parse_address(address, 22)
