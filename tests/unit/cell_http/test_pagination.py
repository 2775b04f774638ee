"""Pages and the headers that lead from one to the next."""

from typing import Any

import pytest
from starlette.requests import Request

from remuda.cell.http.errors import ApiError
from remuda.cell.http.pagination import page_answer, page_of, slice_answer
from remuda.cell.values import Page


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


def test_the_last_page_leads_nowhere() -> None:
    answer = slice_answer(a_request("page=2&per_page=2"), [1, 2, 3])
    assert answer.body == b"[3]"
    assert answer.headers["x-next-page"] == ""
    assert 'rel="next"' not in answer.headers["link"]


def test_an_empty_list_has_one_page() -> None:
    headers = slice_answer(a_request(), []).headers
    assert (headers["x-total"], headers["x-total-pages"]) == ("0", "1")


def test_sizes_are_bounded() -> None:
    assert page_of(a_request("per_page=5000")).size == 100
    assert page_of(a_request()) == Page(number=1, size=20)
    for wrong in ("page=0", "page=-1", "page=²", "per_page=1.5"):
        with pytest.raises(ApiError):
            page_of(a_request(wrong))
