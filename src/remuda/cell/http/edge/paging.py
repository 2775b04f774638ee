"""Pages of lists: reads from a query which page is wanted, and adds GitLab's headers, which link to the other pages."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.edge.errors import ApiError, bad_parameter, json_answer
from remuda.cell.values import Page

T = TypeVar("T")

MAX_SIZE = 100
KEYSET = {
    "pagination": Literal["keyset"],
    "order_by": Literal["id"],
    "sort": Literal["asc", "desc"],
    "id_after": int,
    "id_before": int,
}
"""Query parameters of a list with keyset pagination."""
_AS_IDS = ("id", "created_at")
"""Sort keys with the same order as ids, which increase with the time of creation."""
_MAX_NUMBER = 10_000_000


class Paged(msgspec.Struct, Generic[T], frozen=True):
    entries: Sequence[T]
    total: int
    page: Page


def page_of(request: Request) -> Page:
    """The page that the query asks for by number. Raises ApiError 405 if it asks for keyset pagination."""
    if request.query_params.get("pagination") == "keyset":
        raise ApiError(405, {"error": "Keyset pagination is not yet available for this type of request"})
    number = _number(request, "page", 1)
    return Page(number=min(number, _MAX_NUMBER), size=min(_number(request, "per_page", 20), MAX_SIZE))


def page_by_id(request: Request) -> Page:
    """The page that the query asks for: by number or, with `pagination=keyset`, by the last id of the previous page.
    For keyset pages the database need not count or skip rows, and new entries do not move others to another page."""
    query = request.query_params
    size = min(_number(request, "per_page", 20), MAX_SIZE)
    order_by, sort = query.get("order_by") or "id", query.get("sort") or "desc"
    page = Page(
        number=min(_number(request, "page", 1), _MAX_NUMBER),
        size=size,
        ascending=sort == "asc" if order_by in _AS_IDS else None,
        after=_number(request, "id_after", 0) or None,
        before=_number(request, "id_before", 0) or None,
    )
    if query.get("pagination") != "keyset":
        return page
    if order_by != "id":
        raise ApiError(405, {"error": "Keyset pagination is not yet available for this type of request"})
    if sort not in ("asc", "desc"):
        raise bad_parameter("sort does not have a valid value")
    return replace(page, number=1, counted=False)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text[:18]) < 1:
        raise bad_parameter(f"{name} does not have a valid value")
    return int(text[:18])


def page_answer(request: Request, entries: Sequence[object], total: int, page: Page) -> Response:
    if not page.counted:
        return _keyset_answer(request, entries, page)
    pages = max(-(-total // page.size), 1)
    following = page.number + 1 if page.number < pages else None
    previous = page.number - 1 if page.number > 1 else None
    links = {"prev": previous, "next": following, "first": 1, "last": pages}
    headers = {
        "X-Total": str(total),
        "X-Total-Pages": str(pages),
        "X-Page": str(page.number),
        "X-Per-Page": str(page.size),
        "X-Next-Page": str(following or ""),
        "X-Prev-Page": str(previous or ""),
        "Link": ", ".join(
            f'<{_address(request, {"page": number, "per_page": page.size})}>; rel="{name}"'
            for name, number in links.items()
            if number
        ),
    }
    return json_answer(entries, headers=headers)


def _keyset_answer(request: Request, entries: Sequence[Any], page: Page) -> Response:
    """The response with `entries`, one page of keyset pagination. It links to the next page if this page is full."""
    if len(entries) < page.size:
        return json_answer(entries)
    beyond = "id_after" if page.ascending else "id_before"
    return json_answer(entries, headers={"Link": f'<{_address(request, {beyond: entries[-1].id})}>; rel="next"'})


def slice_answer(request: Request, entries: Sequence[object]) -> Response:
    """The response with the page of `entries` that the request asks for; `entries` is the whole list."""
    page = page_of(request)
    start = (page.number - 1) * page.size
    return page_answer(request, entries[start : start + page.size], len(entries), page)


def _address(request: Request, changed: Mapping[str, int]) -> str:
    """The URL of this request with the query parameters `changed` set, under the host name that the caller used."""
    unchanged = [
        (key, value)
        for key, value in parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if key not in changed
    ]
    query = urlencode([*unchanged, *changed.items()])
    host = request.headers.get("host", "")
    return f"{request.scope['scheme']}://{host}{request.scope['path']}?{query}"
