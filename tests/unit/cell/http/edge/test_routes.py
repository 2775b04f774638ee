"""Handlers: loading of the declared arguments, and conversion of the return value to the response."""

import json
from types import SimpleNamespace
from typing import Annotated, Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.access import OPEN
from remuda.cell.http.edge.endpoints import Edge, Shape
from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.paging import Paged
from remuda.cell.http.edge.routes import Routes
from remuda.cell.values import Page

EDGE: Any = SimpleNamespace(settings=SimpleNamespace(body_limit_bytes=1000))


class NewThing(msgspec.Struct):
    count: int


class Thing(Shape):
    name: str


def a_request(body: bytes = b"", query: bytes = b"") -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "GET", "path": "/", "scheme": "http", "headers": [], "query_string": query}
    return Request(scope, receive)


async def call(routes: Routes, request: Request | None = None) -> tuple[int, Any, Response]:
    response = await routes[0].handler(EDGE, request or a_request())
    return response.status_code, json.loads(bytes(response.body)) if response.body else None, response


async def test_parameters_are_decoded_by_type_and_declared() -> None:
    routes = Routes()

    @routes.post("/things", OPEN)
    async def create(edge: Edge, params: NewThing) -> Thing:
        return Thing(name=f"{params.count} things")

    assert (routes[0].takes, routes[0].gives, routes[0].good_status) == (NewThing, Thing, 201)
    assert (await call(routes, a_request(b'{"count": 2}')))[:2] == (201, {"name": "2 things"})
    _, _, response = await call(routes, a_request(b'{"count": 2, "colour": "red", "size": ""}'))
    assert response.headers["X-Remuda-Ignored"] == "colour"
    with pytest.raises(ApiError) as refused:
        await call(routes, a_request(b"{}"))
    assert refused.value.status == 400


async def test_undeclared_parameters_of_the_query_are_told() -> None:
    routes = Routes()

    @routes.get("/things", OPEN, takes=NewThing)
    async def find(edge: Edge, request: Request) -> Thing:
        return Thing(name=request.query_params["count"])

    @routes.get("/all", OPEN, query={"scope[]": str})
    async def list_all(edge: Edge, request: Request) -> list[Thing]:
        return []

    _, _, response = await call(routes, a_request(query=b"count=2"))
    assert "X-Remuda-Ignored" not in response.headers, "the handler reads the fields of its type"
    response = await routes[1].handler(EDGE, a_request(query=b"scope[]=a&colour=red&size=&page=2&sort=asc"))
    assert response.headers["X-Remuda-Ignored"] == "colour"


async def test_an_argument_with_its_own_loader() -> None:
    async def find(edge: Edge, request: Request) -> Thing:
        return Thing(name=request.query_params["name"])

    routes = Routes()

    @routes.get("/things/{id}", OPEN)
    async def show(edge: Edge, thing: Annotated[Thing, find]) -> Thing:
        return thing

    assert routes[0].takes is None
    assert (await call(routes, a_request(query=b"name=axe")))[:2] == (200, {"name": "axe"})


async def test_none_is_answered_without_content() -> None:
    routes = Routes()

    @routes.delete("/things/{id}", OPEN)
    async def remove(edge: Edge) -> None:
        pass

    assert (await call(routes))[:2] == (204, None)


async def test_a_list_is_paged() -> None:
    routes = Routes()

    @routes.get("/things", OPEN)
    async def list_all(edge: Edge) -> list[Thing]:
        return [Thing(name=name) for name in "abc"]

    status, body, response = await call(routes, a_request(query=b"per_page=2&page=2"))
    assert (status, body, response.headers["x-total"]) == (200, [{"name": "c"}], "3")


async def test_a_page_has_the_total_of_its_list() -> None:
    routes = Routes()

    @routes.get("/things", OPEN)
    async def list_some(edge: Edge, page: Page) -> Paged[Thing]:
        return Paged([Thing(name="a")], 7, page)

    assert routes[0].gives == list[Thing]
    status, body, response = await call(routes)
    assert (status, body, response.headers["x-total"]) == (200, [{"name": "a"}], "7")


async def test_a_response_is_sent_as_it_is() -> None:
    routes = Routes()

    @routes.get("/-/things", OPEN, gives=bytes)
    async def show(edge: Edge) -> Response:
        return Response(b"1", status_code=203)

    assert routes[0].gives is bytes
    assert (await call(routes))[:2] == (203, 1)
