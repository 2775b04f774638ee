"""The routes of the web pages, for the router of the cell, and what all pages have in common: who is signed in, and
error pages."""

from itertools import chain
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from remuda.cell.http.edge import sessions
from remuda.cell.http.edge.admission import Caller, person_of_session
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, refusal, unwrap
from remuda.cell.web.pages import jobs, overview, pipelines, places, queue, runners
from remuda.cell.web.sign_in import forms
from remuda.cell.web.static_files import ROOT, serve_static
from remuda.cell.web.visit import Page, Visit

PAGES: tuple[Page, ...] = tuple(
    chain(
        forms.pages,
        overview.pages,
        queue.pages,
        runners.pages,
        pipelines.pages,
        jobs.pages,
        # Last: it takes every address.
        places.pages,
    )
)

_ADVICE = {
    403: "Ask a maintainer of the project or an administrator for access, or sign in as another user.",
    404: "It does not exist, was deleted, or you may not see it. Check the address, or sign in as another user.",
    503: "A part of the cell does not answer now. Reload the page in a few seconds.",
}


def page_routes(edge: Edge) -> list[BaseRoute]:
    """The routes of all pages and of their static files."""
    routes: list[BaseRoute] = [Route(f"{ROOT}/{{digest}}/{{name}}", serve_static, methods=["GET"])]
    return routes + [_route(edge, page) for page in PAGES]


def _route(edge: Edge, page: Page) -> Route:
    async def answer(request: Request) -> Response:
        # Addresses for programs never become pages, whatever the last route takes.
        if request.url.path.startswith("/api/"):
            raise HTTPException(404)
        visit = await _visit(edge, request)
        if not (page.open_to_all or visit.is_signed_in):
            return visit.ask_to_sign_in()
        try:
            return await page.handler(visit)
        except ApiError as error:
            return show_error(visit, error)
        except Exception as error:
            if (refused := refusal(unwrap(error))) is None:
                raise
            return show_error(visit, refused)

    return Route(page.path, answer, methods=[page.method])


async def _visit(edge: Edge, request: Request) -> Visit:
    secret = sessions.session_secret_in(edge, request.headers)
    caller: Caller | None = None
    if secret is not None:
        try:
            caller = await person_of_session(edge, await sessions.session_of(edge, secret))
        except ApiError as error:
            # Session ended, token revoked, user blocked or removed: as if nobody were signed in.
            if error.status not in (401, 403):
                raise
    return Visit(edge, request, caller, secret if caller else None)


def show_error(visit: Visit, error: ApiError) -> Response:
    """The page for an error: what happened, and what to do."""
    if error.status == 401:
        return visit.ask_to_sign_in()
    reason = describe_error(error.body)
    status = error.status
    answer = visit.render("error.html", status=status, code=status, reason=reason, advice=_ADVICE.get(status, ""))
    if "Retry-After" in error.headers:
        answer.headers["Retry-After"] = error.headers["Retry-After"]
    return answer


def describe_error(body: Any) -> str:
    """The message of an error of the API as a text: without the status, fields joined."""
    message = body.get("message", body.get("error", "")) if isinstance(body, dict) else body
    if isinstance(message, dict):
        parts = [f"{field}: {' '.join(map(str, texts if isinstance(texts, list) else [texts]))}" for field, texts in message.items()]
        return "; ".join(parts)
    text = str(message)
    head, _, rest = text.partition(" ")
    return rest.removeprefix("Forbidden - ").removeprefix("Bad request - ") if head.isdigit() else text
