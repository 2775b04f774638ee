"""Job tokens: `glcbt-` and a JWT signed with Ed25519 that names its cell, its job and the epoch of the hand-out.

The signature proves that a cell made the token and lets a router read the cell without asking anyone. It opens
nothing by itself: the job's row decides, because only there stands which epoch is the current one.
"""

from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remuda.wire.routable import TokenError, to_base36

PREFIX = "glcbt-"
AUDIENCE = "gitlab-authz-token"
VERSION = "0.1.0"
LEEWAY_SECONDS = 300
"""How long after the job's timeout its token is good, so that the final state can still be sent."""

_ALGORITHM = "EdDSA"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClaims:
    """What a job token says."""

    cell_id: int
    organization_id: int
    project_id: int
    user_id: int
    job_id: int
    epoch: int
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key pair with its public name."""

    kid: str
    private: Ed25519PrivateKey

    def pem(self) -> bytes:
        """The private key as it is stored."""
        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def new_key(kid: str) -> SigningKey:
    """A fresh key."""
    return SigningKey(kid=kid, private=Ed25519PrivateKey.generate())


def load_key(kid: str, pem: bytes) -> SigningKey:
    """A stored key."""
    private = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(private, Ed25519PrivateKey):
        raise ValueError(f"signing key {kid} is not an Ed25519 key")
    return SigningKey(kid=kid, private=private)


def sign(claims: JobClaims, key: SigningKey, *, issuer: str, now: float) -> str:
    """Make the token of one hand-out."""
    body = {
        "iss": issuer,
        "aud": AUDIENCE,
        "sub": f"gid://gitlab/Ci::Build/{claims.job_id}",
        "version": VERSION,
        "iat": int(now),
        "exp": claims.expires_at,
        "c": to_base36(claims.cell_id),
        "o": to_base36(claims.organization_id),
        "p": to_base36(claims.project_id),
        "u": to_base36(claims.user_id),
        "epoch": claims.epoch,
    }
    return PREFIX + jwt.encode(body, key.private, algorithm=_ALGORITHM, headers={"kid": key.kid})


def verify(token: str, keys: dict[str, SigningKey], *, now: float) -> JobClaims:
    """Check form, signature, audience and age; TokenError says what is wrong."""
    if not token.startswith(PREFIX) or len(token) > 4096 or not token.isascii():
        raise TokenError("not a job token")
    text = token.removeprefix(PREFIX)
    try:
        kid = jwt.get_unverified_header(text).get("kid")
        key = keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            raise TokenError("signed with a key that this cell does not know")
        body = jwt.decode(
            text,
            key.private.public_key(),
            algorithms=[_ALGORITHM],
            audience=AUDIENCE,
            options={"verify_exp": False, "verify_iat": False, "require": ["exp", "sub", "aud"]},
        )
    except jwt.InvalidTokenError as error:
        raise TokenError(f"not a valid job token: {error}") from None
    claims = _claims(body)
    if claims.expires_at <= now:
        raise TokenError("the job token has expired")
    return claims


def _claims(body: dict[str, Any]) -> JobClaims:
    try:
        return JobClaims(
            cell_id=int(body["c"], 36),
            organization_id=int(body["o"], 36),
            project_id=int(body["p"], 36),
            user_id=int(body["u"], 36),
            job_id=int(str(body["sub"]).rsplit("/", 1)[1]),
            epoch=int(body["epoch"]),
            expires_at=int(body["exp"]),
        )
    except (KeyError, TypeError, ValueError, IndexError):
        raise TokenError("the job token lacks a claim") from None
