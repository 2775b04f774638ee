import json

import jwt
import pytest

from remuda.wire import job_token
from remuda.wire.id_token import IdKey, load_id_key, new_id_key, sign_id_token
from remuda.wire.routable_token import TokenError


@pytest.fixture(scope="module")
def key() -> IdKey:
    return new_id_key("test")


def test_a_token_is_verified_with_the_public_key_alone(key: IdKey) -> None:
    token = sign_id_token({"aud": "https://vault.example", "sub": "project_path:acme/shop"}, key)
    public = jwt.PyJWKSet.from_dict(json.loads(json.dumps({"keys": [key.public_jwk()]})))
    public_key = public[jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(token, public_key.key, algorithms=["RS256"], audience="https://vault.example")
    assert claims["sub"] == "project_path:acme/shop"
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, public_key.key, algorithms=["RS256"], audience="https://elsewhere.example")


def test_the_public_key_holds_nothing_else(key: IdKey) -> None:
    assert set(key.public_jwk()) == {"kty", "use", "alg", "kid", "n", "e"}


def test_a_key_is_stored_and_read_again(key: IdKey) -> None:
    loaded = load_id_key(key.kid, key.pem())
    assert loaded.public_jwk() == key.public_jwk()
    with pytest.raises(ValueError, match="not an RSA key"):
        load_id_key("other", job_token.new_key("other").pem())


def test_an_id_token_never_passes_for_a_job_token(key: IdKey) -> None:
    claims = {"aud": job_token.AUDIENCE, "sub": "gid://gitlab/Ci::Build/1", "exp": 2**40, "epoch": 1}
    forged = job_token.PREFIX + sign_id_token(claims | dict.fromkeys("copu", "1"), key)
    with pytest.raises(TokenError):
        job_token.verify(forged, {"k": job_token.new_key("k")}, now=0)
