"""Adds to each secret of a job (keyword `secrets`) how to reach the server that stores it, such as Vault: the address
and the identity token to log in with. As in GitLab, the runner fetches the secrets and the cell never sees them."""

from collections.abc import Mapping
from typing import Any

from remuda.pipeline import JobSpec


def with_servers(spec: JobSpec, settings: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the secrets of a job by variable name, each with the address and login of the server that stores it.
    `settings` are the job's variables; some of them configure these servers, such as VAULT_SERVER_URL."""
    return {
        name: _with_server(secret, settings, next(iter(spec.id_tokens), "")) for name, secret in spec.secrets.items()
    }


def _with_server(secret: Mapping[str, Any], settings: Mapping[str, str], first_token: str) -> dict[str, Any]:
    completed = dict(secret)
    token = secret.get("token") or (f"${first_token}" if first_token else None)
    servers: dict[str, dict[str, Any]] = {
        "vault": {
            "url": settings.get("VAULT_SERVER_URL"),
            "namespace": settings.get("VAULT_NAMESPACE"),
            "auth": {
                "name": "jwt",
                "path": settings.get("VAULT_AUTH_PATH", "jwt"),
                "data": _drop_none(jwt=token, role=settings.get("VAULT_AUTH_ROLE")),
            },
        },
        "azure_key_vault": {
            "url": settings.get("AZURE_KEY_VAULT_SERVER_URL"),
            "client_id": settings.get("AZURE_CLIENT_ID"),
            "tenant_id": settings.get("AZURE_TENANT_ID"),
            "jwt": token,
        },
        "gcp_secret_manager": {
            "project_number": settings.get("GCP_PROJECT_NUMBER"),
            "workload_identity_federation_pool_id": settings.get("GCP_WORKLOAD_IDENTITY_FEDERATION_POOL_ID"),
            "workload_identity_federation_provider_id": settings.get("GCP_WORKLOAD_IDENTITY_FEDERATION_PROVIDER_ID"),
            "jwt": token,
        },
        "aws_secrets_manager": {
            "region": settings.get("AWS_REGION"),
            "role_arn": settings.get("AWS_ROLE_ARN"),
            "role_session_name": settings.get("AWS_ROLE_SESSION_NAME"),
            "jwt": secret.get("token") or "$AWS_ID_TOKEN",
        },
    }
    for provider, server in servers.items():
        if isinstance(path := secret.get(provider), Mapping):
            completed[provider] = {**path, "server": _drop_none(**server)}
    return completed


def _drop_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
