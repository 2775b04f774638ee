"""Refusals of a cell in words, without methods, paths and status codes."""

from typing import Any

import pytest

from remuda.wire.refusals import explain_refusal, objects_in

URL = "http://cell"
SHOP = "/api/v4/projects/root%2Fshop"


def test_the_objects_of_a_path() -> None:
    assert objects_in(f"{SHOP}/jobs/7/cancel?x=1") == {"project": "root/shop", "job": "7"}
    assert objects_in("/api/remuda/v1/jobs") == {}
    assert objects_in("/api/v4/runners/all") == {}


@pytest.mark.parametrize(
    ("path", "status", "answer", "message"),
    [
        (
            f"{SHOP}/jobs/7",
            404,
            {"message": "404 Project Not Found"},
            "there is no project root/shop on the cell at http://cell, or you may not see it; `remuda project list` "
            "lists those that you may see",
        ),
        (
            f"{SHOP}/jobs/7",
            404,
            {"message": "404 Job Not Found"},
            "there is no job 7 on the cell at http://cell, or you may not see it; `remuda job list` lists those that "
            "you may see",
        ),
        (
            f"{SHOP}/variables/KEY",
            404,
            {"message": "404 Variable Not Found"},
            "there is no variable KEY on the cell at http://cell, or you may not see it; `remuda variable list` lists "
            "those that you may see",
        ),
        (f"{SHOP}/jobs/7", 404, {"message": "404 Not Found - the log is gone"}, "the log is gone"),
        (
            f"{SHOP}/jobs/7/artifacts",
            404,
            {"message": "404 Artifacts Not Found"},
            "job 7 of project root/shop has no artifacts",
        ),
        ("/x", 404, {}, "there is no such thing on the cell at http://cell"),
        ("/x", 409, {"message": "409 Conflict - job 7 has ended"}, "job 7 has ended"),
        ("/x", 400, {"message": "400 Bad request - Unplayable Job"}, "Unplayable Job"),
        ("/x", 400, {"message": {"key": ["is taken", "is short"], "base": ["no"]}}, "key is taken, is short; no"),
        ("/x", 400, {"message": {"path": ["path is too long"]}}, "path is too long"),
        ("/x", 400, {"error": "scope is invalid"}, "scope is invalid"),
        ("/x", 400, {}, "the cell at http://cell refused it without a reason; its log says why"),
        (
            "/api/v4/runners/3",
            403,
            {"message": "403 Forbidden - only owners"},
            "you may not do that (runner 3): only owners",
        ),
    ],
)
def test_explain_refusal(path: str, status: int, answer: dict[str, Any], message: str) -> None:
    assert explain_refusal(URL, path, status, answer) == message


def test_a_refusal_for_missing_rights_names_the_next_step() -> None:
    for answer in ({"message": "403 Forbidden"}, {"error": "insufficient_scope"}, {}):
        message = explain_refusal(URL, "/api/v4/runners/3", 403, answer)
        assert message.startswith("your token may not do that (runner 3) on the cell")
        assert "remuda login" in message
        assert "403" not in message
