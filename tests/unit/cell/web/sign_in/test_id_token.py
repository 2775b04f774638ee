"""ID tokens that a provider has issued, and all kinds of forged ones."""

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from remuda.cell.web.sign_in.errors import SignInError
from remuda.cell.web.sign_in.id_token import check_id_token

ISSUER, CLIENT, NONCE, NOW = "https://login.example", "cell", "n-123", 1_000_000.0
CLAIMS = {"iss": ISSUER, "aud": CLIENT, "sub": "u1", "nonce": NONCE, "iat": NOW - 5, "exp": NOW + 300}
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
RS256 = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
SIGNERS: dict[str, Any] = {"RS256": RSA_KEY, "ES256": EC_KEY, "EdDSA": ED_KEY}


def public(key: Any, algorithm: str, **more: Any) -> dict[str, Any]:
    """A public key as a provider lists it."""
    kinds: dict[str, Any] = {
        "RS256": jwt.algorithms.RSAAlgorithm,
        "ES256": jwt.algorithms.ECAlgorithm,
        "EdDSA": jwt.algorithms.OKPAlgorithm,
    }
    listed: dict[str, Any] = json.loads(kinds[algorithm].to_jwk(key.public_key()))
    listed.pop("key_ops", None)
    return listed | {"use": "sig"} | more


KEYS = [public(key, algorithm, kid=algorithm) for algorithm, key in SIGNERS.items()]


def sign(claims: dict[str, Any], *, key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "RS256") -> str:
    return jwt.encode(claims, key, algorithm, headers={"kid": kid} if kid else {})


def check(token: str, keys: Any = KEYS) -> dict[str, Any]:
    return check_id_token(token, keys, issuer=ISSUER, client_id=CLIENT, nonce=NONCE, now=NOW)


@pytest.mark.parametrize("algorithm", SIGNERS)
@pytest.mark.parametrize("has_kid", [True, False])
def test_a_token_of_the_provider_is_accepted(algorithm: str, has_kid: bool) -> None:
    token = sign(CLAIMS, key=SIGNERS[algorithm], algorithm=algorithm, kid=algorithm if has_kid else None)
    assert check(token)["sub"] == "u1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "another client"),
        ({"aud": ["other"]}, "another client"),
        ({"aud": None}, "another client"),
        ({"aud": ["cell", "other"]}, "issued to another client"),
        ({"aud": ["cell", "other"], "azp": "other"}, "issued to another client"),
        ({"azp": "other"}, "issued to another client"),
        ({"exp": NOW - 61}, "has expired"),
        ({"exp": "never"}, "invalid time"),
        ({"exp": True}, "invalid time"),
        ({"exp": None}, "invalid time"),
        ({"iat": NOW + 61}, "from the future"),
        ({"nbf": NOW + 61}, "from the future"),
        ({"nonce": "n-124"}, "another sign-in"),
        ({"nonce": ["n-123"]}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"sub": ""}, "names no user"),
        ({"sub": None}, "names no user"),
        ({"sub": "x" * 256}, "names no user"),
    ],
)
def test_wrong_claims_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(SignInError, match=reason):
        check(sign_raw({**CLAIMS, **change}))


@pytest.mark.parametrize("name", CLAIMS)
def test_a_missing_claim_is_refused(name: str) -> None:
    with pytest.raises(SignInError):
        check(sign_raw({key: value for key, value in CLAIMS.items() if key != name}))


def test_a_token_for_several_clients_must_name_this_one() -> None:
    assert check(sign({**CLAIMS, "aud": ["cell", "other"], "azp": "cell"}))["sub"] == "u1"


def test_a_wrong_key_is_refused() -> None:
    for token in (sign(CLAIMS, key=OTHER_KEY), sign(CLAIMS, key=OTHER_KEY, kid=None), sign(CLAIMS, kid="unknown")):
        with pytest.raises(SignInError, match="signature"):
            check(token)


def test_a_changed_token_is_refused() -> None:
    head, _, signature = sign(CLAIMS).split(".")
    with pytest.raises(SignInError, match="signature"):
        check(f"{head}.{encode({**CLAIMS, 'sub': 'root'})}.{signature}")


def test_other_algorithms_are_refused() -> None:
    pem = RSA_KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = f"{encode({'alg': 'none', 'typ': 'JWT'})}.{encode(CLAIMS)}."
    head = f"{encode({'alg': 'HS256', 'kid': 'RS256'})}.{encode(CLAIMS)}"
    with_public_key = f"{head}.{to_text(hmac.digest(pem, head.encode(), hashlib.sha256))}"
    for token in (unsigned, unsigned + "eHg", with_public_key, sign(CLAIMS, algorithm="RS512")):
        with pytest.raises(SignInError, match="not signed with one of RS256, ES256, EdDSA"):
            check(token)


def test_a_key_is_used_only_for_its_own_kind_and_use() -> None:
    token = sign(CLAIMS, kid="k")
    fitting = public(RSA_KEY, "RS256", kid="k")
    assert check(token, [fitting])
    refused: list[list[dict[str, Any]]] = [
        [],
        [fitting | {"use": "enc"}],
        [fitting | {"alg": "RS512"}],
        [public(EC_KEY, "ES256", kid="k")],
        [{"kty": "oct", "k": "c2VjcmV0", "kid": "k"}],
        [{"kty": "RSA", "kid": "k", "n": "!", "e": 5}],
        [{}],
    ]
    for keys in refused:
        with pytest.raises(SignInError, match="signature"):
            check(token, keys)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "..", "é.é.é", "a" * 70_000, f"{'e30'}.e30.e30"])
def test_text_that_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(SignInError):
        check(token)


def sign_raw(claims: dict[str, Any]) -> str:
    """Sign claims as they are; the library refuses to sign some wrong ones."""
    head = f"{encode({'alg': 'RS256', 'kid': 'RS256'})}.{encode(claims)}"
    return f"{head}.{to_text(RS256.sign(head.encode(), RSA_KEY))}"


def encode(value: Any) -> str:
    return to_text(json.dumps(value).encode())


def to_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
