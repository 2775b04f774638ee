"""Checks the ID token of an OpenID Connect provider: signature, issuer, audience, times and nonce.

A function of its arguments, so that every forged token is a unit test. `provider` fetches the keys."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.cell.web.sign_in.errors import SignInError

ALGORITHMS = ("RS256", "ES256", "EdDSA")
"""Signature algorithms of ID tokens. Each is used only with keys of its own kind."""
LEEWAY_SECONDS = 60
"""How far the clocks of cell and provider may differ."""
MAX_TOKEN = 64 * 1024
_MAX_SUBJECT = 255
_CAUSE = "The sign-in was refused, because the provider's answer is not valid"


def read_header(token: str) -> tuple[str, str]:
    """Return the algorithm and the key id (empty if missing) of a token. Raises SignInError if it is not a signed
    token with an accepted algorithm."""
    import jwt

    try:
        header = jwt.get_unverified_header(token) if len(token) <= MAX_TOKEN else {}
    except jwt.PyJWTError:
        header = {}
    algorithm, kid = header.get("alg"), header.get("kid", "")
    if algorithm not in ALGORITHMS or not isinstance(kid, str):
        raise refuse(f"its ID token is not signed with one of {', '.join(ALGORITHMS)}")
    return algorithm, kid


def find_keys(keys: Sequence[Mapping[str, Any]], algorithm: str, kid: str) -> list[Any]:
    """Return the keys of a provider that may have signed a token with this algorithm and key id. A key for encryption
    or of another kind is left out."""
    import jwt

    fitting = []
    for key in keys:
        if key.get("use", "sig") != "sig" or (kid and key.get("kid", kid) != kid):
            continue
        try:
            public_key = jwt.PyJWK({**key, "alg": key.get("alg", algorithm)})
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        # A key of another kind, or a secret in the place of a public key, never fits.
        if public_key.algorithm_name == algorithm and key.get("kty") == _KINDS[algorithm]:
            fitting.append(public_key)
    return fitting


_KINDS = {"RS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}


def check_id_token(
    token: str, keys: Sequence[Mapping[str, Any]], *, issuer: str, client_id: str, nonce: str, now: float
) -> dict[str, Any]:
    """Return the claims of an ID token. Raises SignInError if it is not one that this provider has issued for this
    client and this sign-in, or has expired."""
    algorithm, kid = read_header(token)
    claims = _verify(token, find_keys(keys, algorithm, kid), algorithm)
    if claims.get("iss") != issuer:
        raise refuse("its ID token is from another issuer")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if client_id not in audiences:
        raise refuse("its ID token is for another client")
    if (len(audiences) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        raise refuse("its ID token was issued to another client")
    _check_times(claims, now)
    sent = claims.get("nonce")
    if not isinstance(sent, str) or not secrets.compare_digest(sent.encode(), nonce.encode()):
        raise refuse("its ID token belongs to another sign-in")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT:
        raise refuse("its ID token names no user")
    return claims


def _verify(token: str, keys: Sequence[Any], algorithm: str) -> dict[str, Any]:
    import jwt

    for key in keys:
        try:
            # The times are checked afterwards, with the clock of the cell.
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                options={
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                    "verify_aud": False,
                    "verify_iss": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except jwt.PyJWTError:
            continue
        return claims
    raise refuse("the signature of its ID token is wrong")


def _check_times(claims: Mapping[str, Any], now: float) -> None:
    times = {name: claims[name] for name in ("exp", "iat", "nbf") if name in claims}
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in times.values()):
        raise refuse("its ID token has an invalid time")
    if "exp" not in times or "iat" not in times:
        raise refuse("its ID token says not when it expires")
    if times["exp"] <= now - LEEWAY_SECONDS:
        raise refuse("its ID token has expired; check the clocks of cell and provider")
    if max(times["iat"], times.get("nbf", 0)) > now + LEEWAY_SECONDS:
        raise refuse("its ID token is from the future; check the clocks of cell and provider")


def refuse(reason: str) -> SignInError:
    """The error for an answer of the provider that is not valid."""
    return SignInError(f"{_CAUSE}: {reason}. Sign in again; if it happens again, tell an administrator.", reason=reason)
