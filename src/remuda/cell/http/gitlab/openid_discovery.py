"""OpenID Connect discovery: the public keys with which others verify identity tokens and job tokens.

Cloud providers and Vault verify identity tokens; routers and services in front of the cell verify job tokens.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.dispatch.payload_inputs import load_id_keys
from remuda.cell.http.edge.access import OPEN
from remuda.cell.http.edge.endpoints import Edge, Endpoint
from remuda.cell.http.edge.errors import json_answer
from remuda.cell.secrets.key_ring import load_job_token_keys
from remuda.wire.id_token import ALGORITHM

_KEYS = "/oauth/discovery/keys"


async def configuration(edge: Edge, request: Request) -> Response:
    """GET /.well-known/openid-configuration: the OpenID configuration."""
    url = edge.settings.url
    return json_answer(
        {
            "issuer": url,
            "jwks_uri": url + _KEYS,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
            "scopes_supported": ["openid"],
            "claims_supported": ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"],
        }
    )


async def keys(edge: Edge, request: Request) -> Response:
    """GET /oauth/discovery/keys: the public keys, as a JSON Web Key Set."""
    public_keys = [key.public_jwk() for key in await load_id_keys(edge.store)]
    return json_answer({"keys": public_keys + [key.public_jwk() for key in await load_job_token_keys(edge.store)]})


ENDPOINTS = (
    Endpoint("GET", "/.well-known/openid-configuration", configuration, OPEN, gives=dict[str, Any]),
    Endpoint("GET", _KEYS, keys, OPEN, gives=dict[str, Any]),
)
