"""Tokens for a Docker registry: JWTs that say which images their bearer may pull and push.

A registry trusts the certificate of the signing key (`rootcertbundle`), so each token contains it (`x5c`). A key that
the cell creates is P-256, because registries do not support Ed25519; a configured key may be RSA, P-384 or P-521, too.
The audience is the name of the registry, so no other service accepts such a token."""

import base64
import hashlib
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

LIFE_SECONDS = 300
"""Lifetime of a token. It is short, because clients request a new token for every upload or download."""

_ALGORITHMS = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_CERTIFICATE_LIFE = timedelta(days=3650)
_CLOCK_DIFFERENCE = timedelta(days=1)


class RegistryKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key pair that signs registry tokens, with its certificate."""

    private: "ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey"
    certificate: "x509.Certificate"

    @property
    def algorithm(self) -> str:
        # Imported here and below, because these take long and few cells have a registry.
        from cryptography.hazmat.primitives.asymmetric import rsa

        return "RS256" if isinstance(self.private, rsa.RSAPrivateKey) else _ALGORITHMS[self.private.curve.name]

    @property
    def kid(self) -> str:
        """The key id that registries use: 30 bytes of a hash of the public key, in groups of base32."""
        from cryptography.hazmat.primitives import serialization

        public = self.private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        text = base64.b32encode(hashlib.sha256(public).digest()[:30]).decode()
        return ":".join(text[start : start + 4] for start in range(0, len(text), 4))

    def pem(self) -> bytes:
        """Key and certificate in PEM format, as they are stored."""
        from cryptography.hazmat.primitives import serialization

        key = self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return key + self.certificate_pem()

    def certificate_pem(self) -> bytes:
        """Return the certificate that the registry must trust, as PEM."""
        from cryptography.hazmat.primitives import serialization

        return self.certificate.public_bytes(serialization.Encoding.PEM)


class Access(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    actions: tuple[str, ...]


def new_registry_key(cell_id: int, now: float) -> RegistryKey:
    """Create a P-256 key with a self-signed certificate that names the cell."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"Remuda cell {cell_id} registry tokens")])
    created_at = datetime.fromtimestamp(int(now), UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(created_at - _CLOCK_DIFFERENCE)
        .not_valid_after(created_at + _CERTIFICATE_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    return RegistryKey(private=private, certificate=certificate)


@lru_cache(maxsize=4)
def load_registry_key(pem: bytes) -> RegistryKey:
    """Read a private key and its certificate. Raises ValueError if the text is invalid. Cached: loading is slow."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    private = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) or (
        isinstance(private, ec.EllipticCurvePrivateKey) and private.curve.name not in _ALGORITHMS
    ):
        raise ValueError("it is neither an RSA key nor one of the curves P-256, P-384, P-521")
    certificate = x509.load_pem_x509_certificate(pem)
    if certificate.public_key() != private.public_key():
        raise ValueError("the certificate is not that of the key")
    return RegistryKey(private=private, certificate=certificate)


def sign_registry_token(
    access: Sequence[Access], key: RegistryKey, *, issuer: str, service: str, subject: str, now: float
) -> str:
    import jwt
    from cryptography.hazmat.primitives import serialization

    claims: dict[str, Any] = {
        "iss": issuer,
        "sub": subject,
        "aud": service,
        "iat": int(now),
        "nbf": int(now) - 5,
        "exp": int(now) + LIFE_SECONDS,
        "jti": str(uuid.uuid4()),
        "access": [{"type": "repository", "name": image.name, "actions": list(image.actions)} for image in access],
    }
    chain = [base64.b64encode(key.certificate.public_bytes(serialization.Encoding.DER)).decode()]
    return jwt.encode(claims, key.private, algorithm=key.algorithm, headers={"kid": key.kid, "x5c": chain})
