"""Identity tokens (`id_tokens`): JWTs that prove to other services which job calls, and the keys that verify them.

Signed with RS256, which cloud providers and Vault accept. They have a separate key, because the user chooses the
audience of such a token: the cell itself must never accept one."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from remuda.wire.routable_token import to_base64url

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import rsa

ALGORITHM = "RS256"
KEY_PREFIX = "id-"
"""Prefix of the names of keys that sign identity tokens. Names of keys for job tokens do not have it."""

_KEY_BITS = 2048


class IdKey(msgspec.Struct, frozen=True, kw_only=True):
    kid: str
    private: "rsa.RSAPrivateKey"

    def pem(self) -> bytes:
        # Imported here and below, because it takes long and few jobs have such tokens.
        from cryptography.hazmat.primitives import serialization

        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def public_jwk(self) -> dict[str, str]:
        """Return the public key as a JSON Web Key, for services that verify tokens."""
        numbers = self.private.public_key().public_numbers()
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": ALGORITHM,
            "kid": self.kid,
            "n": _encode_number(numbers.n),
            "e": _encode_number(numbers.e),
        }


def new_id_key(name: str) -> IdKey:
    """Create an RSA key pair with a key id made from `name`. This can take most of a second."""
    from cryptography.hazmat.primitives.asymmetric import rsa

    return IdKey(kid=KEY_PREFIX + name, private=rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS))


@lru_cache(maxsize=16)
def load_id_key(kid: str, pem: bytes) -> IdKey:
    """Load an RSA private key. Raises ValueError for another kind of key. Cached: loading takes longer than signing."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    private = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(private, rsa.RSAPrivateKey):
        raise ValueError(f"signing key {kid} is not an RSA key")
    return IdKey(kid=kid, private=private)


def sign_id_token(claims: Mapping[str, Any], key: IdKey) -> str:
    import jwt

    return jwt.encode(dict(claims), key.private, algorithm=ALGORITHM, headers={"kid": key.kid})


def _encode_number(number: int) -> str:
    return to_base64url(number.to_bytes((number.bit_length() + 7) // 8))
