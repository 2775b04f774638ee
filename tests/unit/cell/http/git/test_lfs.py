"""Errors as git-lfs expects them."""

import errno
import json

import pytest

from remuda.cell.errors import QuotaExceededError, StoreError
from remuda.cell.http.edge.errors import ApiError, ClientGoneError
from remuda.cell.http.git.lfs import _refuse, find_route


def full_disk() -> StoreError:
    error = StoreError("cannot write a blob")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return error


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (full_disk(), 507, "the disk of the cell is full: cannot write a blob"),
        (OSError(errno.EDQUOT, "Quota exceeded"), 507, "the disk of the cell is full"),
        (StoreError("no connection"), 503, "no connection"),
        (QuotaExceededError("too much"), 507, "too much"),
        (ApiError(400, {"error": "size is missing"}), 422, "size is missing"),
        (ApiError(413, {"message": "413 too large"}), 413, "413 too large"),
    ],
)
def test_errors(error: Exception, status: int, message: str) -> None:
    answer = _refuse(error)
    assert answer is not None
    assert (answer.status_code, answer.media_type) == (status, "application/vnd.git-lfs+json")
    assert message in json.loads(bytes(answer.body))["message"]


@pytest.mark.parametrize("error", [ValueError("bug"), ClientGoneError()])
def test_other_errors_are_not_answered_here(error: Exception) -> None:
    assert _refuse(error) is None


def test_routes_for_metrics() -> None:
    oid = "a" * 64
    assert find_route("GET", f"gitlab-lfs/objects/{oid}") == "/{path}.git/gitlab-lfs/objects/{oid}"
    assert find_route("PUT", f"gitlab-lfs/objects/{oid}/7") == "/{path}.git/gitlab-lfs/objects/{oid}/{size}"
    assert find_route("POST", "info/lfs/locks/7/unlock") == "/{path}.git/info/lfs/locks/{lock_id}/unlock"
    assert find_route("POST", "info/lfs/other") == ""
