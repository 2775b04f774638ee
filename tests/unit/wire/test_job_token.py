import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.job_token import (
    OPAQUE_RANDOM_BYTES,
    SCOPES,
    JobClaims,
    load_key,
    new_key,
    opaque,
    opaque_job,
    sign,
    verify,
)
from remuda.wire.routable_token import TokenError

NOW = 1_750_000_000
KEY = new_key("k1")
KEYS = {"k1": KEY, "k2": new_key("k2")}
CLAIMS = JobClaims(
    cell_id=1, organization_id=2, project_id=3, user_id=4, job_id=1_000_000_000_001, epoch=2, expires_at=NOW + 60
)


def token(**changes: Any) -> str:
    """Return a token that is signed with our key and has changed claims."""
    body = jwt.decode(sign(CLAIMS, KEY, issuer="i", now=NOW)[6:], options={"verify_signature": False})
    body = {name: value for name, value in (body | changes).items() if value is not None}
    return "glcbt-" + jwt.encode(body, KEY.private, algorithm="EdDSA", headers={"kid": "k1"})


def refusal(text: str, now: float = NOW) -> str:
    with pytest.raises(TokenError) as error:
        verify(text, KEYS, now=now)
    return str(error.value)


def test_claims_are_read_back() -> None:
    assert verify(sign(CLAIMS, KEY, issuer="i", now=NOW), KEYS, now=NOW + 59) == CLAIMS


def test_a_router_can_read_the_cell_without_a_key() -> None:
    body = jwt.decode(sign(CLAIMS, KEY, issuer="i", now=NOW)[6:], options={"verify_signature": False})
    assert (body["c"], body["o"], body["p"], body["aud"], body["version"]) == (
        "1",
        "2",
        "3",
        "gitlab-authz-token",
        "0.1.0",
    )


def test_an_expired_token_is_refused() -> None:
    assert "expired" in refusal(sign(CLAIMS, KEY, issuer="i", now=NOW), now=NOW + 60)


def test_a_token_of_another_key_is_refused() -> None:
    assert "does not know" in refusal(sign(CLAIMS, new_key("k3"), issuer="i", now=NOW))
    assert "Signature" in refusal(sign(CLAIMS, new_key("k1"), issuer="i", now=NOW))


def test_a_forged_claim_is_refused() -> None:
    head, body, signature = sign(CLAIMS, KEY, issuer="i", now=NOW)[6:].split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = base64.urlsafe_b64encode(json.dumps(claims | {"epoch": 3}).encode()).decode().rstrip("=")
    assert "Signature" in refusal(f"glcbt-{head}.{forged}.{signature}")


def test_no_signature_and_other_algorithms_are_refused() -> None:
    body = jwt.decode(sign(CLAIMS, KEY, issuer="i", now=NOW)[6:], options={"verify_signature": False})
    unsigned = jwt.encode(body, "", algorithm="none", headers={"kid": "k1"})
    public = KEY.private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    by_public_key = jwt.encode(body, public, algorithm="HS256", headers={"kid": "k1"})
    by_rsa = jwt.encode(body, generate_private_key(65537, 2048), algorithm="RS256", headers={"kid": "k1"})
    for forged in (unsigned, by_public_key, by_rsa):
        assert "not a valid job token" in refusal(f"glcbt-{forged}")


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "other"},
        {"exp": None},
        {"sub": None},
        {"c": None},
        {"c": 7},
        {"c": "!"},
        {"sub": "gid://gitlab/Ci::Build/x"},
        {"epoch": None},
        {"epoch": "x"},
        {"exp": "soon"},
    ],
)
def test_a_token_with_missing_or_invalid_claims_is_refused(changes: dict[str, Any]) -> None:
    refusal(token(**changes))
    assert verify(token(), KEYS, now=NOW) == CLAIMS


def test_scopes_are_in_the_token() -> None:
    assert verify(token(scopes=["job", "other"]), KEYS, now=NOW).scopes == {"job"}
    assert verify(token(scopes=[]), KEYS, now=NOW).scopes == set()
    assert verify(token(scopes=None), KEYS, now=NOW).scopes == SCOPES  # as an older release made them
    for wrong in ("job", 7, {"job": 1}, [["job"]]):
        refusal(token(scopes=wrong))


@given(st.integers(1, 2**63 - 1), st.binary(min_size=OPAQUE_RANDOM_BYTES, max_size=OPAQUE_RANDOM_BYTES))
def test_an_opaque_token_names_its_job(job_id: int, random: bytes) -> None:
    text = opaque(job_id, random)
    assert opaque_job(text) == job_id
    assert opaque_job(text[:-1]) is None
    assert "damaged" in refusal(text) or "not a" in refusal(text)


def test_the_public_half_is_enough_to_check_a_token() -> None:
    public = jwt.PyJWK(KEY.public_jwk()).key
    text = sign(CLAIMS, KEY, issuer="i", now=NOW)[6:]
    claims = jwt.decode(
        text,
        public,
        algorithms=["EdDSA"],
        audience="gitlab-authz-token",
        options={"verify_exp": False, "verify_iat": False},
    )
    assert claims["scopes"] == sorted(SCOPES)
    assert jwt.get_unverified_header(text)["kid"] == KEY.public_jwk()["kid"] == "k1"


@given(st.data())
def test_a_token_that_was_cut_off_is_refused(data: st.DataObject) -> None:
    whole = sign(CLAIMS, KEY, issuer="i", now=NOW)
    refusal(whole[: data.draw(st.integers(0, len(whole) - 1))])


DEEP = base64.urlsafe_b64encode(b"[" * 2000).decode().rstrip("=")


@given(st.text() | st.text("\ud800.eyJ-_", max_size=50) | st.sampled_from(["a.b.c", f"{DEEP}.e30.AA", "x" * 5000]))
def test_invalid_text_always_raises_a_token_error(text: str) -> None:
    refusal(text)
    refusal(f"glcbt-{text}")


def test_a_key_is_stored_and_read_again() -> None:
    loaded = load_key("k1", KEY.pem())
    assert verify(sign(CLAIMS, loaded, issuer="i", now=NOW), KEYS, now=NOW) == CLAIMS
    rsa = generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ValueError, match="not an Ed25519 key"):
        load_key("rsa", rsa)


def test_a_stored_key_has_the_format_of_the_library() -> None:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    assert KEY.pem() == KEY.private.private_bytes(*form)
    public = KEY.private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    assert base64.urlsafe_b64decode(KEY.public_jwk()["x"] + "=") == public


def test_a_key_in_another_layout_is_read_too() -> None:
    head, text, tail = KEY.pem().strip().split(b"\n")
    folded = b"\n".join([head, text[:40], text[40:], tail, b""])
    assert load_key("k1", folded).pem() == KEY.pem()
