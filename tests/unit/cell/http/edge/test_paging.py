"""Pages of lists and their pagination headers, by page number and by id (keyset)."""

from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from remuda.cell.http.edge.errors import ApiError
from remuda.cell.http.edge.paging import page_answer, page_by_id, page_of, slice_answer
from remuda.cell.values import Page


class Entry(msgspec.Struct):
    id: int


def a_request(query: str = "") -> Request:
    scope: dict[str, Any] = {
        "type": "http",
        "scheme": "https",
        "path": "/api/v4/projects/acme%2Fshop/jobs",
        "query_string": query.encode(),
        "headers": [(b"host", b"ci.example")],
    }
    return Request(scope)


def test_links_keep_the_address_and_the_filters() -> None:
    answer = page_answer(a_request("scope[]=failed&page=2&per_page=10"), [], 35, Page(number=2, size=10))
    root = "https://ci.example/api/v4/projects/acme%2Fshop/jobs?scope%5B%5D=failed"
    assert answer.headers["link"].split(", ") == [
        f'<{root}&page=1&per_page=10>; rel="prev"',
        f'<{root}&page=3&per_page=10>; rel="next"',
        f'<{root}&page=1&per_page=10>; rel="first"',
        f'<{root}&page=4&per_page=10>; rel="last"',
    ]
    assert (answer.headers["x-next-page"], answer.headers["x-prev-page"]) == ("3", "1")


def test_the_last_page_has_no_next_link() -> None:
    answer = slice_answer(a_request("page=2&per_page=2"), [1, 2, 3])
    assert answer.body == b"[3]"
    assert answer.headers["x-next-page"] == ""
    assert 'rel="next"' not in answer.headers["link"]


def test_an_empty_list_has_one_page() -> None:
    headers = slice_answer(a_request(), []).headers
    assert (headers["x-total"], headers["x-total-pages"]) == ("0", "1")


def test_page_sizes_and_invalid_parameters() -> None:
    assert page_of(a_request("per_page=5000")).size == 100
    assert page_of(a_request()) == Page(number=1, size=20)
    for invalid in ("page=0", "page=-1", "page=²", "per_page=1.5"):
        with pytest.raises(ApiError):
            page_of(a_request(invalid))


def test_keyset_link_continues_after_the_last_entry() -> None:
    request = a_request("pagination=keyset&order_by=id&sort=asc&per_page=2&scope[]=failed&id_after=3")
    page = page_by_id(request)
    assert page == Page(size=2, ascending=True, after=3, counted=False)
    answer = page_answer(request, [Entry(id=5), Entry(id=8)], 0, page)
    root = "https://ci.example/api/v4/projects/acme%2Fshop/jobs"
    query = "pagination=keyset&order_by=id&sort=asc&per_page=2&scope%5B%5D=failed&id_after=8"
    assert answer.headers["link"] == f'<{root}?{query}>; rel="next"'
    assert "x-total" not in answer.headers
    assert "link" not in page_answer(request, [Entry(id=9)], 0, page).headers


def test_keyset_pages_are_descending_by_default() -> None:
    page = page_by_id(a_request("pagination=keyset"))
    assert page == Page(ascending=False, counted=False)
    link = page_answer(a_request("pagination=keyset"), [Entry(id=7)] * 20, 0, page).headers["link"]
    assert "id_before=7" in link
    # Ids of all cells but the first one have 13 digits.
    assert page_by_id(a_request("id_before=1000000000007")).before == 1_000_000_000_007


def test_keyset_pagination_that_is_not_supported_or_invalid() -> None:
    for read, query in (
        (page_of, "pagination=keyset"),
        (page_by_id, "pagination=keyset&order_by=name"),
    ):
        with pytest.raises(ApiError) as refused:
            read(a_request(query))
        assert refused.value.status == 405
    for invalid in ("pagination=keyset&sort=up", "pagination=keyset&id_after=x", "id_before=-1"):
        with pytest.raises(ApiError) as refused:
            page_by_id(a_request(invalid))
        assert refused.value.status == 400
