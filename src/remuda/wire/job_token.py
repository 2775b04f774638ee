"""Job tokens: `glcbt-` and a JWT signed with Ed25519 that names its cell, its job and the epoch (how many times the job
was given to a runner).

A router in front of several cells reads the cell from the token, without a lookup. A valid signature alone grants
nothing: the cell compares the epoch with that of the job in its store. Opaque job tokens, the older kind, are `glcbt-`,
the job's id in hex, and random characters; only a hash in the store can check them. PyJWT is not used, because its
import takes 6 % of a run with one empty job (docs/decisions/0026); tests compare with it."""

import base64
import binascii
import json
import re
from functools import lru_cache
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remuda.wire.routable_token import TokenError, to_base36, to_base64url

PREFIX = "glcbt-"
AUDIENCE = "gitlab-authz-token"
VERSION = "0.1.0"
LEEWAY_SECONDS = 300
"""How long a token is valid after the job's timeout, so that the final state can still be sent."""

OPAQUE_RANDOM_BYTES = 15
SCOPES = frozenset({"job", "artifacts", "repository", "registry", "releases", "pipelines", "deployments"})
"""Scopes of a token: its own job, artifacts of other jobs, git, registry images, releases, starting pipelines,
environments and deployments."""

_ALGORITHM = "EdDSA"
_PEM_HEAD, _PEM_TAIL = b"-----BEGIN PRIVATE KEY-----\n", b"\n-----END PRIVATE KEY-----\n"
_PKCS8_HEAD = bytes.fromhex("302e020100300506032b657004220420")
"""The constant bytes before the 32 bytes of an Ed25519 key in its PKCS8 form. The library's functions for this form
would import all other key formats."""
_json = msgspec.json.Encoder().encode
_OPAQUE = re.compile(PREFIX + r"([0-9a-f]{1,16})_[0-9A-Za-z_-]{20}", re.ASCII)


class UnknownKeyError(TokenError):
    """The token is signed with a key that was not given, maybe a newer one: the caller can load the keys again."""


class JobClaims(msgspec.Struct, frozen=True, kw_only=True):
    cell_id: int
    organization_id: int
    project_id: int
    user_id: int
    job_id: int
    epoch: int
    expires_at: int
    scopes: frozenset[str] = SCOPES


class SigningKey(msgspec.Struct, frozen=True, kw_only=True):
    kid: str
    private: Ed25519PrivateKey

    def pem(self) -> bytes:
        return _PEM_HEAD + base64.b64encode(_PKCS8_HEAD + self.private.private_bytes_raw()) + _PEM_TAIL

    def public_jwk(self) -> dict[str, str]:
        raw = self.private.public_key().public_bytes_raw()
        return {
            "kty": "OKP",
            "crv": "Ed25519",
            "use": "sig",
            "alg": _ALGORITHM,
            "kid": self.kid,
            "x": to_base64url(raw),
        }


class ExpiredError(TokenError):
    """The token is valid except that it has expired. `claims` has its content."""

    def __init__(self, claims: JobClaims) -> None:
        super().__init__("the job token has expired")
        self.claims = claims


def new_key(kid: str) -> SigningKey:
    return SigningKey(kid=kid, private=Ed25519PrivateKey.generate())


def load_key(kid: str, pem: bytes) -> SigningKey:
    raw = _read_raw(pem)
    if raw is not None:
        return SigningKey(kid=kid, private=Ed25519PrivateKey.from_private_bytes(raw))
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(private, Ed25519PrivateKey):
        raise ValueError(f"signing key {kid} is not an Ed25519 key")
    return SigningKey(kid=kid, private=private)


def _read_raw(pem: bytes) -> bytes | None:
    """The raw private key in a PEM text of `SigningKey.pem`; None if the text has another form."""
    if not pem.startswith(_PEM_HEAD) or not pem.endswith(_PEM_TAIL):
        return None
    try:
        data = base64.b64decode(pem[len(_PEM_HEAD) : -len(_PEM_TAIL)], validate=True)
    except binascii.Error:
        return None
    is_plain = data.startswith(_PKCS8_HEAD) and len(data) == len(_PKCS8_HEAD) + 32
    return data[len(_PKCS8_HEAD) :] if is_plain else None


def sign(claims: JobClaims, key: SigningKey, *, issuer: str, now: float) -> str:
    """Return a new signed job token for the runner of the job. `issuer`: the cell's address. `now`: issue time."""
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
        "scopes": _sort_scopes(claims.scopes),
    }
    text = f"{_header(key.kid)}.{_encode(body)}"
    return f"{PREFIX}{text}.{to_base64url(key.private.sign(text.encode()))}"


def verify(token: str, keys: dict[str, SigningKey], *, now: float) -> JobClaims:
    """Check format, signature, audience and expiry of a job token, and return its content. `keys`: the accepted keys by
    key id. Raises TokenError, or its subclass UnknownKeyError or ExpiredError."""
    if not token.startswith(PREFIX) or len(token) > 4096 or not token.isascii():
        raise TokenError("not a job token")
    signed, _, signature = token.removeprefix(PREFIX).rpartition(".")
    header, _, body = signed.partition(".")
    fields = _decode(header)
    if fields.get("alg") != _ALGORITHM or "crit" in fields:
        raise TokenError("not a valid job token: its header is not supported")
    kid = fields.get("kid")
    key = keys.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise UnknownKeyError("signed with a key that this cell does not know")
    try:
        key.private.public_key().verify(_bytes(signature), signed.encode())
    except InvalidSignature:
        raise TokenError("not a valid job token: Signature verification failed") from None
    values = _decode(body)
    if values.get("aud") != AUDIENCE:
        raise TokenError("not a valid job token: it is for another service")
    claims = _read_claims(values)
    if claims.expires_at <= now:
        raise ExpiredError(claims)
    return claims


def opaque(job_id: int, random: bytes) -> str:
    """Return a job token of the older kind: job id and random characters, unsigned. `random`: fresh random bytes."""
    return f"{PREFIX}{job_id:x}_{to_base64url(random)}"


def opaque_job(token: str) -> int | None:
    """Return the job id that a job token of the older, unsigned kind contains; None if the text is not such a token."""
    match = _OPAQUE.fullmatch(token)
    return int(match[1], 16) if match else None


def _read_claims(body: dict[str, Any]) -> JobClaims:
    scopes = body.get("scopes", list(SCOPES))  # tokens that an older release made have none
    if not isinstance(scopes, list):
        raise TokenError("the job token's scopes are not a list")
    try:
        return JobClaims(
            cell_id=int(body["c"], 36),
            organization_id=int(body["o"], 36),
            project_id=int(body["p"], 36),
            user_id=int(body["u"], 36),
            job_id=int(str(body["sub"]).rsplit("/", 1)[1]),
            epoch=int(body["epoch"]),
            expires_at=int(body["exp"]),
            scopes=SCOPES.intersection(scopes),
        )
    except (KeyError, TypeError, ValueError, IndexError):
        raise TokenError("the job token lacks a claim") from None


@lru_cache(maxsize=64)
def _sort_scopes(scopes: frozenset[str]) -> list[str]:
    """Return the scopes as a sorted list. It is cached, because most tokens have the same, so do not change it."""
    return sorted(scopes)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenError("not a valid job token: it is damaged") from None


@lru_cache(maxsize=16)
def _header(kid: str) -> str:
    return _encode({"alg": _ALGORITHM, "kid": kid, "typ": "JWT"})


def _encode(values: dict[str, Any]) -> str:
    return to_base64url(_json(values))


def _decode(text: str) -> dict[str, Any]:
    try:
        values = json.loads(_bytes(text))
    except (ValueError, RecursionError):
        raise TokenError("not a valid job token: it is damaged") from None
    if not isinstance(values, dict):
        raise TokenError("not a valid job token: it is damaged")
    return values
