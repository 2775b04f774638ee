import re
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from remuda.wire.registry_token import Access, load_registry_key, new_registry_key, sign_registry_token

NOW = int(time.time())
KEY = new_registry_key(1, NOW)
ACCESS = [Access(name="acme/shop", actions=("pull", "push"))]


def pem_of(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_the_claims_of_a_token() -> None:
    token = sign_registry_token(ACCESS, KEY, issuer="https://ci.example", service="r", subject="ada", now=NOW)
    public = KEY.certificate.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    # The token may have expired when the test runs; its lifetime is checked below.
    claims = jwt.decode(
        token,
        public,
        algorithms=["ES256"],
        audience="r",
        issuer="https://ci.example",
        options={"verify_exp": False},
    )
    assert claims["access"] == [{"type": "repository", "name": "acme/shop", "actions": ["pull", "push"]}]
    assert (claims["sub"], claims["exp"] - claims["iat"]) == ("ada", 300)
    header = jwt.get_unverified_header(token)
    assert (header["alg"], header["kid"], len(header["x5c"])) == ("ES256", KEY.kid, 1)
    assert re.fullmatch(r"([A-Z2-7]{4}:){11}[A-Z2-7]{4}", KEY.kid)


def test_a_key_is_stored_and_read_again() -> None:
    loaded = load_registry_key(KEY.pem())
    assert (loaded.kid, loaded.certificate, loaded.algorithm) == (KEY.kid, KEY.certificate, "ES256")
    assert KEY.certificate_pem() in KEY.pem()
    assert b"PRIVATE" not in KEY.certificate_pem()


def test_invalid_registry_keys_are_refused() -> None:
    other = new_registry_key(1, NOW)
    for wrong in (
        b"",
        pem_of(ec.generate_private_key(ec.SECP256R1())),
        KEY.certificate_pem(),
        pem_of(ed25519.Ed25519PrivateKey.generate()) + KEY.certificate_pem(),
        pem_of(ec.generate_private_key(ec.SECP256K1())) + KEY.certificate_pem(),
        KEY.pem().replace(KEY.certificate_pem(), other.certificate_pem()),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            load_registry_key(wrong)
