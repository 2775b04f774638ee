"""Names and ports of services."""

from typing import Any

import pytest

from remuda.stdsteps.service.names import aliases, parse_listening, ports, short_name


@pytest.mark.parametrize(
    ("image", "configured", "expected"),
    [
        ("postgres:16", [], ["postgres"]),
        ("tutum/wordpress:latest", [], ["tutum__wordpress", "tutum-wordpress"]),
        ("r.example:5000/g/app:1", [], ["r.example__g__app", "r.example-g-app"]),
        ("r.example/app@sha256:0f", ["db, primary  x"], ["db", "primary", "x", "r.example__app", "r.example-app"]),
        ("postgres", ["-bad", "postgres"], ["postgres"]),
    ],
)
def test_aliases(image: str, configured: list[str], expected: list[str]) -> None:
    assert aliases(image, configured) == expected


def test_short_names() -> None:
    assert (short_name(["a__b"]), short_name([]), len(short_name(["x" * 99]))) == ("a__b", "service", 40)


def test_ports() -> None:
    config: dict[str, Any] = {"ExposedPorts": {"5432/tcp": {}, "53/udp": {}, "80": {}, "x/tcp": {}}}
    assert ports(config, {}) == [80, 5432]
    assert ports(config, {"HEALTHCHECK_TCP_PORT": "9000"}) == [9000]
    assert ports(config, {"HEALTHCHECK_TCP_PORT": "none"}) == [80, 5432]
    assert ports({"ExposedPorts": None}, {}) == []
    assert len(ports({"ExposedPorts": {f"{port}/tcp": {} for port in range(1, 50)}}, {})) == 20


def test_only_listening_ports_that_others_can_reach_are_parsed() -> None:
    table = """  sl  local_address rem_address   st tx_queue
   0: 00000000:1F90 00000000:0000 0A 00000000
   1: 0100007F:1F91 00000000:0000 0A 00000000
   2: 020011AC:1F92 030011AC:1234 01 00000000
   3: 00000000000000000000000000000000:1F93 00000000000000000000000000000000:0000 0A
   4: 00000000000000000000000001000000:1F94 00000000000000000000000000000000:0000 0A
   5: 0000000000000000FFFF00000100007F:1F95 00000000000000000000000000000000:0000 0A
   6: broken
"""
    assert parse_listening(table) == {8080, 8083}
