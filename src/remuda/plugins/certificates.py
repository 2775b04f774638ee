"""Certificates for mutual TLS between host and plugin, compatible with go-plugin's AutoMTLS.

Each side trusts only the certificate that the other passes through the pipe or the environment. No file remains after a
call. Imported only when TLS is on, because `cryptography` takes long to import."""

import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remuda.lib.dataclass import dataclass
from remuda.plugins.errors import PermanentError

NAME = "localhost"
"""Common name of both certificates."""
_LIFE = timedelta(hours=262_980)
_LATE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A self-signed certificate and its private key, in PEM; `der` is the certificate in DER."""

    certificate: bytes
    key: bytes
    der: bytes


def new_identity() -> Identity:
    key = ec.generate_private_key(ec.SECP521R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, NAME),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "HashiCorp"),
        ]
    )
    now = datetime.now(UTC)
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    usage = x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_agreement=True,
        key_cert_sign=True,
        content_commitment=False,
        data_encipherment=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _LATE)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(key, hashes.SHA512())
    )
    private_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    encoding = serialization.Encoding
    return Identity(
        certificate=certificate.public_bytes(encoding.PEM),
        key=private_key,
        der=certificate.public_bytes(encoding.DER),
    )


def server_context(own: Identity, client: str) -> ssl.SSLContext:
    """TLS context of a plugin with the identity `own`. It accepts only the host with the certificate `client` (PEM)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _complete(context, own, client)


def client_context(own: Identity, server: bytes) -> ssl.SSLContext:
    """TLS context of a host with the identity `own`, for the plugin with the certificate `server` (DER). Raises
    PermanentError if that certificate is invalid."""
    try:
        pem = ssl.DER_cert_to_PEM_cert(server)
        return _complete(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), own, pem)
    except ssl.SSLError as error:
        raise PermanentError(f"the certificate in the plugin's handshake cannot be read: {error}") from error


def _complete(context: ssl.SSLContext, own: Identity, trusted: str) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=trusted)
    with tempfile.TemporaryDirectory(prefix="remuda-tls-") as folder:
        file = Path(folder) / "own.pem"
        file.touch(0o600)
        file.write_bytes(own.key + own.certificate)
        context.load_cert_chain(file)
    return context
