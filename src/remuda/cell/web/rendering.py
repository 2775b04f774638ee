"""Renders templates to HTML responses, with the security headers that every page has."""

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from remuda import __version__
from remuda.cell.web.formatting import FILTERS, with_page
from remuda.cell.web.static_files import static_address
from remuda.cell.web.trails import group_trail, project_trail

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types remuda-page remuda-worker",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""No inline script or style, nothing from other servers; scripts turn no text into HTML but pages of the cell
(trusted types)."""


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("remuda.cell.web"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= FILTERS
    environment.filters["segment"] = lambda text: quote(str(text), safe="")
    environment.filters["path"] = lambda text: quote(str(text), safe="/")
    environment.globals |= {
        "static": static_address,
        "version": __version__,
        "with_page": with_page,
        "project_trail": project_trail,
        "group_trail": group_trail,
    }
    return environment


def render(template: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """Render a template to a response."""
    text = _environment().get_template(template).render(values)
    return HTMLResponse(text, status, headers=dict(SECURITY_HEADERS))
