"""The OpenAPI document: every route is in it, it is well formed, and it tells what the code reads."""

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
_TAKEN = re.compile(r"(?:parameters|convert)\(\s*(?:edge,\s*)?\w+,\s*(\w+)")
_QUERIED = re.compile(r"query(?:_params)?(?:\.get|\.getlist)?[(\[](?:request, )?\"([^\"]+)\"")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_every_route_is_in_it() -> None:
    documented = {(method, path) for method, path, _ in operations()}
    served = {(endpoint.method, endpoint.path.replace(":path}", "}")) for endpoint in (*ENDPOINTS, *DIRECT)}
    assert documented == served


def test_references_lead_somewhere() -> None:
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(DOCUMENT)):
        place = DOCUMENT
        for word in reference.split("/"):
            place = place[word]


def test_names_of_operations_and_parameters_are_unique() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))
    for _, path, operation in operations():
        parameters = [(parameter["name"], parameter["in"]) for parameter in operation["parameters"]]
        assert len(parameters) == len(set(parameters))
        assert {name for name, place in parameters if place == "path"} == set(re.findall(r"\{(\w+)\}", path))


@pytest.mark.parametrize("endpoint", [*ENDPOINTS, *DIRECT], ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_every_endpoint_says_what_it_gives(endpoint: Endpoint) -> None:
    """One without content is a removal, or says its status."""
    assert endpoint.gives is not None or endpoint.method == "DELETE" or endpoint.good_status == 204
    answers = DOCUMENT["paths"][endpoint.path.replace(":path}", "}")][endpoint.method.lower()]["responses"]
    assert str(endpoint.good_status) in answers
    if endpoint.access.kind in (Kind.USER, Kind.PROJECT, Kind.GROUP, Kind.ADMINISTRATOR):
        assert {"401", "403"} <= answers.keys()


@pytest.mark.parametrize("module", MODULES)
def test_what_a_module_reads_is_declared(module: str) -> None:
    """The types that handlers read parameters as, and the names that they look for in a query."""
    source = inspect.getsource(sys.modules[module])
    own = [endpoint for endpoint in ENDPOINTS if endpoint.handler.__module__ == module]
    declared = {getattr(endpoint.takes, "__name__", "") for endpoint in own}
    assert set(_TAKEN.findall(source)) - {"dict"} <= declared
    # A list of projects is read in one module for two others.
    queried = {name for endpoint in ENDPOINTS for name in endpoint.query} | {"page", "per_page", "pagination"}
    assert set(_QUERIED.findall(source)) <= queried
