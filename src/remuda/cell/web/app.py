"""The routes of the web pages, for the router of the cell, and what all pages have in common: who is signed in, and
error pages."""

from itertools import chain

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from remuda.cell.http.edge import sessions
from remuda.cell.http.edge.admission import Caller, person_of_session
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import ApiError, refusal, unwrap
from remuda.cell.web.errors import show_error
from remuda.cell.web.pages import (
    admin,
    artifacts,
    badges,
    editor,
    groups,
    jobs,
    overview,
    paths,
    pipeline,
    pipelines,
    profile,
    projects,
    queue,
    repository,
    runners,
    settings,
)
from remuda.cell.web.sign_in import forms, oidc
from remuda.cell.web.sign_in.memory import SignInMemory
from remuda.cell.web.static_files import ROOT, serve_static
from remuda.cell.web.visit import Page, Visit

PAGES: tuple[Page, ...] = tuple(
    chain(
        forms.pages,
        oidc.pages,
        overview.pages,
        queue.pages,
        admin.pages,
        profile.pages,
        runners.pages,
        settings.pages,
        # Addresses of groups begin with /groups, and would fit those of projects, too.
        groups.pages,
        projects.pages,
        pipelines.pages,
        pipeline.pages,
        badges.pages,
        artifacts.pages,
        jobs.pages,
        editor.pages,
        repository.pages,
        # Last: it takes every address.
        paths.pages,
    )
)


def page_routes(edge: Edge) -> list[BaseRoute]:
    """The routes of all pages and of their static files."""
    routes: list[BaseRoute] = [Route(f"{ROOT}/{{digest}}/{{name}}", serve_static, methods=["GET"])]
    sign_in = SignInMemory(edge)
    return routes + [_route(edge, page, sign_in) for page in PAGES]


def _route(edge: Edge, page: Page, sign_in: SignInMemory) -> Route:
    async def answer(request: Request) -> Response:
        visit = await _visit(edge, request, sign_in)
        if not (page.open_to_all or visit.is_signed_in or (is_public(page) and edge.settings.web.public_projects)):
            return visit.ask_to_sign_in()
        try:
            return await page.handler(visit)
        except ApiError as error:
            # Somebody who is not signed in learns nothing about what they may not see, not even that it is missing.
            if is_public(page) and not visit.is_signed_in and error.status in (403, 404):
                return visit.ask_to_sign_in()
            return show_error(visit, error)
        except Exception as error:
            if (refused := refusal(unwrap(error))) is None:
                raise
            return show_error(visit, refused)

    return Route(page.path, answer, methods=[page.method])


def is_public(page: Page) -> bool:
    """True for the pages of a project. What they show to somebody who is not signed in is decided by the API, which
    refuses all but public projects; the page then asks to sign in."""
    return (page.method == "GET" and page.path.startswith("/{project:path}/")) or page.path == paths.PLACE


async def _visit(edge: Edge, request: Request, sign_in: SignInMemory) -> Visit:
    secret = sessions.session_secret_in(edge, request.headers)
    caller: Caller | None = None
    if secret is not None:
        try:
            caller = await person_of_session(edge, await sessions.session_of(edge, secret))
        except ApiError as error:
            # Session ended, token revoked, user blocked or removed: as if nobody were signed in.
            if error.status not in (401, 403):
                raise
    return Visit(edge, request, caller, secret if caller else None, sign_in)
