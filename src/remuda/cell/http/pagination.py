"""Lists come in pages, with GitLab's headers, so that its clients find the next one.

Pure but for reading the request. Used by every endpoint that lists.
"""

from collections.abc import Sequence
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import Response

from remuda.cell.http.errors import bad_parameter, json_answer
from remuda.cell.values import Page

MAX_SIZE = 100
KEYSET = {
    "pagination": Literal["keyset"],
    "order_by": Literal["id"],
    "sort": Literal["asc", "desc"],
    "id_after": int,
    "id_before": int,
}
"""What a list takes that can also be walked by ids."""
_MAX_NUMBER = 10_000_000


def page_of(request: Request) -> Page:
    """Which page is asked for."""
    number = _number(request, "page", 1)
    return Page(number=min(number, _MAX_NUMBER), size=min(_number(request, "per_page", 20), MAX_SIZE))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text[:12]) < 1:
        raise bad_parameter(f"{name} does not have a valid value")
    return int(text[:12])


def page_answer(request: Request, entries: Sequence[object], total: int, page: Page) -> Response:
    """The page with the headers that lead to the others."""
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
            f'<{_address(request, number, page.size)}>; rel="{name}"' for name, number in links.items() if number
        ),
    }
    return json_answer(entries, headers=headers)


def slice_answer(request: Request, entries: Sequence[object]) -> Response:
    """A page of a list that is small enough to have as a whole."""
    page = page_of(request)
    start = (page.number - 1) * page.size
    return page_answer(request, entries[start : start + page.size], len(entries), page)


def _address(request: Request, number: int, size: int) -> str:
    """The same request for another page, under the address the caller used."""
    kept = [
        (key, value)
        for key, value in parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if key not in ("page", "per_page")
    ]
    query = urlencode([*kept, ("page", number), ("per_page", size)])
    host = request.headers.get("host", "")
    return f"{request.scope['scheme']}://{host}{request.scope['path']}?{query}"
