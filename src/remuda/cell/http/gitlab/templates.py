"""The files of `include:template`: Remuda's own, and those of the folder in the setting `templates`. Not those of a
server in that setting, which the cell fetches only when a pipeline file includes them."""

import asyncio

import msgspec
from starlette.requests import Request

from remuda.cell.http.edge.access import OPEN
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import not_found
from remuda.cell.http.edge.lookup import text_in_path
from remuda.cell.http.edge.paging import Paged, page_of
from remuda.cell.http.edge.routes import Routes
from remuda.pipeline.templates import key_of, list_keys, read_template

_ROOT = "/api/v4/templates/gitlab_ci_ymls"
routes = Routes()


class TemplateName(msgspec.Struct, kw_only=True):
    key: str
    name: str


class TemplateShape(msgspec.Struct, kw_only=True):
    name: str
    content: str


@routes.get(_ROOT, OPEN)
async def list_all(edge: Edge, request: Request) -> Paged[TemplateName]:
    """List the templates of pipeline files."""
    page = page_of(request)
    keys = await asyncio.to_thread(list_keys, edge.settings.templates)
    start = (page.number - 1) * page.size
    names = [TemplateName(key=key, name=key) for key in keys[start : start + page.size]]
    return Paged(names, len(keys), page)


@routes.get(f"{_ROOT}/{{key:path}}", OPEN)
async def show(edge: Edge, request: Request) -> TemplateShape:
    """Show a template, with or without `.gitlab-ci.yml` in its name."""
    key = key_of(text_in_path(request, "key"))
    text = await asyncio.to_thread(read_template, key, edge.settings.templates) if key else None
    if key is None or not isinstance(text, str):
        raise not_found("Template")
    return TemplateShape(name=key, content=text)
