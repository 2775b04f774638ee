"""OpenID Connect discovery: the public keys with which other services verify the id tokens and job tokens of a cell.

Cloud providers and Vault verify id tokens; routers and services in front of the cell verify job tokens.
"""

from typing import Any

from remuda.cell.dispatch.payload_inputs import load_id_keys
from remuda.cell.http.edge.access import OPEN
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.routes import Routes
from remuda.cell.secrets.key_ring import load_job_token_keys
from remuda.wire.id_token import ALGORITHM

_KEYS = "/oauth/discovery/keys"


routes = Routes()


@routes.get("/.well-known/openid-configuration", OPEN)
async def configuration(edge: Edge) -> dict[str, Any]:
    """Show the OpenID configuration, which verifiers of id tokens read."""
    url = edge.settings.url
    return {
        "issuer": url,
        "jwks_uri": url + _KEYS,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
        "scopes_supported": ["openid"],
        "claims_supported": ["iss", "sub", "aud", "exp", "nbf", "iat", "jti"],
    }


@routes.get(_KEYS, OPEN)
async def keys(edge: Edge) -> dict[str, Any]:
    """Show the public keys of id tokens and job tokens, as a JSON Web Key Set."""
    public_keys = [key.public_jwk() for key in await load_id_keys(edge.store)]
    return {"keys": public_keys + [key.public_jwk() for key in await load_job_token_keys(edge.store)]}
