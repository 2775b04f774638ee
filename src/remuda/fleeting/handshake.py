"""Handshake of HashiCorp's go-plugin: the first line of a plugin, and its environment variables. Pure.

The line is `1|0|unix|PATH|grpc|CERTIFICATE`: core protocol, version of the plugin's protocol, network, address, kind of
calls, and the plugin's certificate if the host wants TLS."""

import base64
import binascii
import re
from collections.abc import Collection, Mapping

from remuda.fleeting.errors import PermanentError
from remuda.lib.dataclass import dataclass

COOKIE = "FLEETING_INSTANCE_GROUP_PLUGIN"
COOKIE_VALUE = "4c6410b1-cb78-4962-8c76-ab936d0ea908"
CORE_VERSION = 1
VERSIONS = (0,)
"""Supported versions of the plugin's protocol."""
PREFIX = "PLUGIN_"
OFFERED = "PLUGIN_PROTOCOL_VERSIONS"
CLIENT_CERTIFICATE = "PLUGIN_CLIENT_CERT"
SOCKETS = "PLUGIN_UNIX_SOCKET_DIR"
SOCKETS_GROUP = "PLUGIN_UNIX_SOCKET_GROUP"
LEAST_CERTIFICATE = 50
"""A shorter sixth field is not a certificate."""
_NUMBER = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """Fields of the handshake line: protocol version, socket address and certificate of the plugin."""

    version: int
    network: str
    address: str
    certificate: bytes = b""
    """DER."""

    @property
    def line(self) -> str:
        certificate = base64.b64encode(self.certificate).decode().rstrip("=")
        return f"{CORE_VERSION}|{self.version}|{self.network}|{self.address}|grpc|{certificate}"


def environment(inherited: Mapping[str, str], *, sockets: str, certificate: str = "") -> dict[str, str]:
    """Environment of a plugin's process. Inherited PLUGIN_ variables are left out: a certificate in them would turn TLS
    on. `sockets`: folder for the plugin's socket; `certificate`: of the host, turns mutual TLS on."""
    others = {name: value for name, value in inherited.items() if not name.startswith(PREFIX)}
    own = {
        COOKIE: COOKIE_VALUE,
        "PLUGIN_MIN_PORT": "10000",
        "PLUGIN_MAX_PORT": "25000",
        OFFERED: ",".join(str(version) for version in VERSIONS),
        SOCKETS: sockets,
    }
    return others | own | ({CLIENT_CERTIFICATE: certificate} if certificate else {})


def choose_version(offered: str, own: Collection[int] = VERSIONS) -> int:
    """The highest protocol version that both the host (`offered`, comma-separated) and the plugin (`own`) have. If
    there is none, the lowest of `own`: the host refuses it with an error that names the versions of both."""
    theirs = {int(version) for version in offered.split(",") if _NUMBER.fullmatch(version.strip())}
    return max(theirs & set(own), default=min(own))


def read_handshake(line: str, *, asked_for_certificate: bool = False) -> Handshake:
    """Parse a plugin's handshake line. Raises PermanentError if it is malformed, has an unsupported version, or has a
    certificate although none was requested (`asked_for_certificate`), or none although one was."""
    fields = line.strip().split("|")
    if len(fields) < 4 or not _NUMBER.fullmatch(fields[0]):
        raise PermanentError(
            f"this is no handshake: {line.strip()[:200]!r}; the first line on stdout has to be "
            "1|0|unix|PATH|grpc|, and nothing may be printed before"
        )
    core, version, network, address, *rest = fields
    if core != str(CORE_VERSION):
        raise PermanentError(f"the plugin speaks go-plugin's core protocol {core[:20]}, this Remuda {CORE_VERSION}")
    if version not in {str(supported) for supported in VERSIONS}:
        versions = ", ".join(str(supported) for supported in VERSIONS)
        raise PermanentError(
            f"no protocol version in common: the plugin speaks {version[:20]!r}, this Remuda {versions}; "
            "use another version of one of them"
        )
    speaks = rest[0] if rest else "netrpc"
    if speaks != "grpc":
        raise PermanentError(f"the plugin speaks {speaks[:20]}, only grpc is known; build it with a newer SDK")
    _check_address(network, address)
    encoded = rest[1] if len(rest) > 1 and len(rest[1]) > LEAST_CERTIFICATE else ""
    if encoded and not asked_for_certificate:
        raise PermanentError("the handshake has a certificate although none was asked for; leave its sixth field empty")
    if asked_for_certificate and not encoded:
        raise PermanentError("the handshake has no certificate although one was asked for; switch AutoMTLS off for it")
    return Handshake(version=int(version), network=network, address=address, certificate=_decode(encoded))


def _check_address(network: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    if network == "unix" and address.startswith("/"):
        return
    if (
        network == "tcp"
        and host in ("127.0.0.1", "localhost", "[::1]")
        and _NUMBER.fullmatch(port)
        and int(port) < 65536
    ):
        return
    raise PermanentError(
        f"the handshake names {network[:20]!r} and {address[:200]!r}; "
        "supported are unix with an absolute path, and tcp with a port of this machine"
    )


def _decode(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except binascii.Error as error:
        raise PermanentError(f"the certificate in the handshake is not base64: {error}") from error
