"""Identity tokens: JWTs that prove to others which job asks, and the public keys by which they check that.

Signed with RS256, which is what cloud providers and Vault accept, and with a key of their own: the audience of such a
token is chosen by the user, so it must never pass for anything that the cell itself accepts.
"""

import base64
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import rsa

ALGORITHM = "RS256"
KEY_PREFIX = "id-"
"""Names of keys that sign identity tokens begin so; those of job tokens do not."""

_KEY_BITS = 2048


class IdKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key pair with its public name."""

    kid: str
    private: "rsa.RSAPrivateKey"

    def pem(self) -> bytes:
        """The private key as it is stored."""
        # Late, here and below: it takes long, and few jobs have such tokens.
        from cryptography.hazmat.primitives import serialization

        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def public_jwk(self) -> dict[str, str]:
        """The public half, as others fetch it."""
        numbers = self.private.public_key().public_numbers()
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": ALGORITHM,
            "kid": self.kid,
            "n": _base64url(numbers.n),
            "e": _base64url(numbers.e),
        }


def new_id_key(name: str) -> IdKey:
    """A fresh key; takes a good part of a second."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    return IdKey(kid=KEY_PREFIX + name, private=rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS))


@lru_cache(maxsize=16)
def load_id_key(kid: str, pem: bytes) -> IdKey:
    """A stored key. Kept, because to check one takes much longer than to sign with it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(private, rsa.RSAPrivateKey):
        raise ValueError(f"signing key {kid} is not an RSA key")
    return IdKey(kid=kid, private=private)


def sign_id_token(claims: Mapping[str, Any], key: IdKey) -> str:
    import jwt

    return jwt.encode(dict(claims), key.private, algorithm=ALGORITHM, headers={"kid": key.kid})


def _base64url(number: int) -> str:
    raw = number.to_bytes((number.bit_length() + 7) // 8)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
