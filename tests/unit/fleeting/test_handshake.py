"""The handshake line, the environment variables of a plugin, and the choice of the protocol version."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.fleeting.errors import PermanentError
from remuda.fleeting.handshake import (
    COOKIE,
    COOKIE_VALUE,
    LEAST_CERTIFICATE,
    Handshake,
    choose_version,
    environment,
    read_handshake,
)

PATHS = st.text(st.characters(codec="ascii", exclude_characters="|\n\r", exclude_categories=["C", "Z"])).map(
    "/{}".format
)


@given(path=PATHS, certificate=st.binary(min_size=LEAST_CERTIFICATE, max_size=900) | st.just(b""))
def test_a_written_line_is_read_back(path: str, certificate: bytes) -> None:
    handshake = Handshake(version=0, network="unix", address=path, certificate=certificate)
    assert read_handshake(f"{handshake.line}\n", asked_for_certificate=bool(certificate)) == handshake


@given(st.text())
@example("²")
@example("9" * 10_000)
def test_any_line_is_read_or_refused(line: str) -> None:
    with suppress(PermanentError):
        read_handshake(line)
    with suppress(PermanentError):
        read_handshake(f"1|0|tcp|127.0.0.1:{line}|grpc|")


def test_lines_of_go_plugins_are_read() -> None:
    assert read_handshake("1|0|unix|/tmp/plugin123|grpc|").address == "/tmp/plugin123"
    assert read_handshake(" 1|0|tcp|127.0.0.1:10000|grpc||true \n").network == "tcp"


def test_a_certificate_that_was_asked_for_must_be_sent() -> None:
    with pytest.raises(PermanentError, match="no certificate although one was asked for"):
        read_handshake("1|0|unix|/tmp/a|grpc|", asked_for_certificate=True)
    with pytest.raises(PermanentError, match="not base64"):
        read_handshake(f"1|0|unix|/tmp/a|grpc|{'!' * 60}", asked_for_certificate=True)


@pytest.mark.parametrize(
    ("offered", "own", "chosen"),
    [("0", (0,), 0), ("5,1", (0,), 0), ("0,1,2", (1, 2, 3), 2), ("", (0, 1), 0), ("x,1", (0, 1), 1), ("7", (2, 3), 2)],
)
def test_the_highest_common_version_or_our_lowest(offered: str, own: tuple[int, ...], chosen: int) -> None:
    assert choose_version(offered, own) == chosen


def test_go_plugin_variables_of_our_own_environment_are_not_passed_on() -> None:
    own_environment = {"PATH": "/bin", "PLUGIN_CLIENT_CERT": "x", "PLUGIN_MULTIPLEX_GRPC": "true", COOKIE: "other"}
    assert environment(own_environment, sockets="/tmp/s") == {
        "PATH": "/bin",
        COOKIE: COOKIE_VALUE,
        "PLUGIN_MIN_PORT": "10000",
        "PLUGIN_MAX_PORT": "25000",
        "PLUGIN_PROTOCOL_VERSIONS": "0",
        "PLUGIN_UNIX_SOCKET_DIR": "/tmp/s",
    }
    assert environment({}, sockets="/tmp/s", certificate="PEM")["PLUGIN_CLIENT_CERT"] == "PEM"
