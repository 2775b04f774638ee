"""The access rule of every endpoint fits the endpoint's path and method."""

import pytest

from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import ENDPOINTS
from remuda.cell.http.edge.endpoints import Endpoint
from remuda.cell.values.people import Level

PATH_PARTS = {
    Kind.PROJECT: "/projects/{id}",
    Kind.GROUP: "/groups/{id}",
    Kind.JOB_NUMBER: "/jobs/{job_id}",
    Kind.PIPELINE_NUMBER: "/pipelines/{pipeline_id}",
    Kind.RUNNER_NUMBER: "/runners/{runner_id}",
}
OPEN_PATHS = {
    "/-/health",
    "/-/liveness",
    "/-/readiness",
    "/-/metrics",
    "/api/remuda/v1/openapi.json",
    "/jwt/certificate",
    # Redirects, which tell nothing about what exists.
    "/{project:path}/-/pipelines/{number}",
    "/{project:path}/-/jobs/{number}",
}


OWN = ("/members/{user_id}", "/self/rotate")
"""Calls that change only the caller's own membership or token, if the level is low."""


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name_of)
def test_access_fits_the_path(endpoint: Endpoint) -> None:
    access = endpoint.access
    if access.kind in PATH_PARTS:
        assert PATH_PARTS[access.kind] in endpoint.path
    else:
        assert not access.level
    if access.kind is Kind.OPEN:
        assert endpoint.path in OPEN_PATHS or endpoint.path.startswith(
            ("/.well-known/", "/oauth/discovery/", "/api/v4/templates/")
        )
    # An endpoint of a project needs access to the project, and a change needs the role Developer at least.
    if "/projects/{id}" in endpoint.path:
        assert access.kind in (Kind.PROJECT, Kind.TRIGGER)
        if endpoint.method != "GET" and access.kind is Kind.PROJECT and not endpoint.path.endswith(OWN):
            assert access.level >= Level.DEVELOPER


def test_every_route_is_declared_once() -> None:
    names = [name_of(endpoint) for endpoint in ENDPOINTS]
    assert len(names) == len(set(names))
