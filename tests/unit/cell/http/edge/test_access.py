"""Every endpoint says who may call it, and what it says fits its path."""

import pytest

from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import ENDPOINTS
from remuda.cell.http.edge.endpoints import Endpoint
from remuda.cell.values.people import Level

NAMED = {
    Kind.PROJECT: "/projects/{id}",
    Kind.GROUP: "/groups/{id}",
    Kind.JOB_NUMBER: "/jobs/{job_id}",
    Kind.PIPELINE_NUMBER: "/pipelines/{pipeline_id}",
    Kind.RUNNER_NUMBER: "/runners/{runner_id}",
}
OPEN = {"/-/health", "/-/liveness", "/-/readiness", "/-/metrics", "/api/remuda/v1/openapi.json", "/jwt/certificate"}


def name_of(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=name_of)
def test_access_fits_the_path(endpoint: Endpoint) -> None:
    access = endpoint.access
    if access.kind in NAMED:
        assert NAMED[access.kind] in endpoint.path
    else:
        assert not access.level
    if access.kind is Kind.OPEN:
        assert endpoint.path in OPEN or endpoint.path.startswith(("/.well-known/", "/oauth/discovery/"))
    # Whatever names a project is for those in the project, and nobody changes one who only reads it.
    if "/projects/{id}" in endpoint.path:
        assert access.kind in (Kind.PROJECT, Kind.TRIGGER)
        if endpoint.method != "GET" and access.kind is Kind.PROJECT and "/members/" not in endpoint.path:
            assert access.level >= Level.DEVELOPER


def test_no_route_is_there_twice() -> None:
    names = [name_of(endpoint) for endpoint in ENDPOINTS]
    assert len(names) == len(set(names))
