"""What the handler of a page gets (`Visit`), and how pages are declared (`Pages`).

    pages = Pages()

    @pages.get("/admin/runners")
    async def show_runners(visit: Visit) -> Response:
        return visit.render("runners.html", runners=await visit.api.get("/api/v4/runners/all"))

A page needs a signed-in user unless it is declared with `open_to_all`; without one it redirects to the sign-in form,
which returns to the page."""

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from remuda.cell.http.edge.admission import ANONYMOUS, Caller
from remuda.cell.http.edge.bodies import is_number
from remuda.cell.http.edge.endpoints import Edge
from remuda.cell.http.edge.errors import not_found, unauthorized
from remuda.cell.http.edge.sessions import csrf_token
from remuda.cell.web.page_api import PageApi
from remuda.cell.web.rendering import render
from remuda.cell.web.sign_in.memory import SignInMemory

SIGN_IN = "/-/sign-in"


class Visit:
    """One request for a page. `caller` and `secret`: who is signed in, and the secret of the session, if anybody."""

    def __init__(
        self, edge: Edge, request: Request, caller: Caller | None, secret: str | None, sign_in: SignInMemory
    ) -> None:
        self.edge = edge
        self.request = request
        self.sign_in = sign_in
        self.secret = secret
        self._caller = caller

    @property
    def is_signed_in(self) -> bool:
        return self._caller is not None

    @property
    def caller(self) -> Caller:
        """The user of the page; ANONYMOUS if nobody is signed in and the cell shows public projects to all. Raises
        ApiError 401 if nobody is signed in otherwise."""
        if self._caller is None:
            if self.edge.settings.web.public_projects:
                return ANONYMOUS
            raise unauthorized()
        return self._caller

    @cached_property
    def api(self) -> PageApi:
        """The cell's API with the rights of the user of the page."""
        return PageApi(self.request.scope["app"].call_api, self.request.scope, self.caller)

    def text(self, name: str) -> str:
        """The decoded parameter `name` of the path."""
        return unquote(self.request.path_params[name])

    def query(self, name: str) -> str:
        """The parameter `name` of the query; empty if it is missing."""
        return self.request.query_params.get(name, "").strip()

    def number(self, name: str) -> int:
        """The parameter `name` of the path as a number. Raises ApiError 404 if it is none."""
        text = self.text(name)
        if not is_number(text):
            raise not_found("Page")
        return int(text)

    @property
    def page_number(self) -> int:
        """The page of a list that the query asks for; 1 if it asks for none."""
        text = self.query("page")
        return max(int(text), 1) if is_number(text) else 1

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Render a template. Besides `values` it gets what the layout needs: user, CSRF token, address."""
        user = self._caller.user if self._caller else None
        layout = {
            "user": user,
            "csrf": csrf_token(self.secret) if self.secret and user else "",
            "address": self.request.url.path,
            "query": self.request.query_params,
            "cell_url": self.edge.settings.url,
            "now": self.edge.clock.wall(),
        }
        return render(template, layout | values, status)

    def redirect(self, address: str) -> Response:
        """Redirect to an address of this cell, with GET."""
        return RedirectResponse(address, 303, headers={"Cache-Control": "no-store"})

    def ask_to_sign_in(self) -> Response:
        """Redirect to the sign-in form, which comes back to this page."""
        address = self.request.url.path + (f"?{self.request.url.query}" if self.request.url.query else "")
        return self.redirect(f"{SIGN_IN}?{urlencode({'return_to': address})}" if address != "/" else SIGN_IN)


Handler = Callable[[Visit], Awaitable[Response]]


class Page(msgspec.Struct, frozen=True):
    method: str
    path: str
    handler: Handler
    open_to_all: bool


class Pages(list[Page]):
    """The pages of a module, in the order in which they are tried. Its decorators add pages."""

    def get(self, path: str, *, open_to_all: bool = False) -> Callable[[Handler], Handler]:
        return self._adder("GET", path, open_to_all)

    def post(self, path: str, *, open_to_all: bool = False) -> Callable[[Handler], Handler]:
        return self._adder("POST", path, open_to_all)

    def _adder(self, method: str, path: str, open_to_all: bool) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.append(Page(method, path, handler, open_to_all))
            return handler

        return add
