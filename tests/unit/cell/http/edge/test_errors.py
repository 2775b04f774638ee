"""Mapping of exceptions to HTTP responses."""

import errno

import pytest

from remuda.cell.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    StoreError,
    TooLargeError,
)
from remuda.cell.git.port import GitError
from remuda.cell.http.edge.errors import refusal, unwrap


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (StoreError("disk full"), 503, {"Retry-After": "5"}),
        (OSError(errno.ENOSPC, "No space left on device"), 503, {"Retry-After": "5"}),
        (ForbiddenError("no", job_status="canceled"), 403, {"Job-Status": "canceled"}),
        (ForbiddenError("no"), 403, {}),
        (NotFoundError("x"), 404, {}),
        (InvalidError("x"), 400, {}),
        (ConflictError("x"), 409, {}),
        (TooLargeError("x"), 413, {}),
        (GitError("x"), 400, {}),
    ],
)
def test_status_and_headers(error: Exception, status: int, headers: dict[str, str]) -> None:
    grouped = ExceptionGroup("tasks", [ExceptionGroup("inner", [error])])
    response = refusal(unwrap(grouped))
    assert response
    assert (response.status, response.headers) == (status, headers)


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.ENOENT, "x"), KeyError("x")])
def test_unexpected_errors_have_no_response(error: Exception) -> None:
    assert refusal(error) is None
