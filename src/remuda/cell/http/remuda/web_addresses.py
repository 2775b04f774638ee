"""Redirects the addresses of web pages, which responses contain (`web_url`) and a push prints, to the API, because a
cell has no web pages. A redirect tells nothing about what exists; the API checks who asks.

A separate module, because the addresses are of all kinds of objects."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.access import OPEN
from remuda.cell.http.edge.bodies import is_number
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import not_found
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.routes import Routes

routes = Routes()


@routes.get("/{project:path}/-/pipelines/{number}", OPEN, gives=bytes, status=302, also=(404,))
async def open_pipeline(edge: Edge, request: Request) -> Response:
    """Redirect to the pipeline in the API."""
    return _redirect(edge, request, "pipelines")


@routes.get("/{project:path}/-/jobs/{number}", OPEN, gives=bytes, status=302, also=(404,))
async def open_job(edge: Edge, request: Request) -> Response:
    """Redirect to the job in the API."""
    return _redirect(edge, request, "jobs")


def _redirect(edge: Edge, request: Request, kind: str) -> Response:
    number = text_in_path(request, "number")
    if not is_number(number):
        raise not_found("Page")
    project = quote(text_in_path(request, "project"), safe="")
    address = f"{edge.settings.url.rstrip('/')}/api/v4/projects/{project}/{kind}/{number}"
    return Response(f"{address}\n", 302, {"Location": address}, media_type="text/plain")
