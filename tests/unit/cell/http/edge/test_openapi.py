"""The OpenAPI document contains every route, is well formed, and declares the parameters that handlers read."""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from remuda.cell.http.edge.access import Kind
from remuda.cell.http.edge.app import DIRECT, ENDPOINTS, api_document
from remuda.cell.http.edge.endpoints import Endpoint

DOCUMENT: dict[str, Any] = json.loads(api_document())
MODULES = sorted({endpoint.handler.__module__ for endpoint in ENDPOINTS})
_PARAMETER_TYPES = re.compile(r"(?:parameters|convert)\(\s*(?:edge,\s*)?\w+,\s*(\w+)")
_QUERY_NAMES = re.compile(r"query(?:_params)?(?:\.get|\.getlist)?[(\[](?:request, )?\"([^\"]+)\"")


def list_operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_is_documented() -> None:
    documented = {(method, path) for method, path, _ in list_operations()}
    served = {(endpoint.method, endpoint.path.replace(":path}", "}")) for endpoint in (*ENDPOINTS, *DIRECT)}
    assert documented == served


def test_every_reference_can_be_resolved() -> None:
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT)):
        node = DOCUMENT
        for key in reference.split("/"):
            node = node[key]


def test_names_of_operations_and_parameters_are_unique() -> None:
    names = [operation["operationId"] for _, _, operation in list_operations()]
    assert len(names) == len(set(names))
    for _, path, operation in list_operations():
        parameters = [(parameter["name"], parameter["in"]) for parameter in operation["parameters"]]
        assert len(parameters) == len(set(parameters))
        assert {name for name, place in parameters if place == "path"} == set(re.findall(r"\{(\w+)\}", path))


@pytest.mark.parametrize("endpoint", [*ENDPOINTS, *DIRECT], ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_every_endpoint_declares_its_response(endpoint: Endpoint) -> None:
    """Only a DELETE, or an endpoint that declares status 204, has no content."""
    assert endpoint.gives is not None or endpoint.method == "DELETE" or endpoint.good_status == 204
    responses = DOCUMENT["paths"][endpoint.path.replace(":path}", "}")][endpoint.method.lower()]["responses"]
    assert str(endpoint.good_status) in responses
    if endpoint.access.kind in (Kind.USER, Kind.PROJECT, Kind.GROUP, Kind.ADMINISTRATOR):
        assert {"401", "403"} <= responses.keys()


@pytest.mark.parametrize("module", MODULES)
def test_parameters_that_a_module_reads_are_declared(module: str) -> None:
    """Checks the types that handlers convert parameters to, and the query names that they read."""
    source = inspect.getsource(sys.modules[module])
    endpoints = [endpoint for endpoint in ENDPOINTS if endpoint.handler.__module__ == module]
    declared = {getattr(endpoint.takes, "__name__", "") for endpoint in endpoints}
    assert set(_PARAMETER_TYPES.findall(source)) - {"dict"} <= declared
    # All endpoints count, because one module reads the query of a project list for two others.
    queried = {name for endpoint in ENDPOINTS for name in endpoint.query} | {"page", "per_page", "pagination"}
    assert set(_QUERY_NAMES.findall(source)) <= queried
