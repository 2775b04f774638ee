"""Rules of the strict test server: valid requests pass, and each mistake is found."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest
from tests.support.runners import strict_rules as rules
from tests.support.runners.strict_rules import Call

from remuda.wire.runner_api import FEATURES

LOG = b"0123456789"
INFO = {"name": "remuda-manager", "version": "1", "features": dict.fromkeys(FEATURES, True)}
COMMON = {"user-agent": "remuda-manager 1 (CPython 3.11)", "x-request-id": "0" * 32}
JSON = {"content-type": "application/json"}
PART = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\nPK\r\n--b--\r\n'

VALID = {
    "request": Call(
        "POST",
        "/api/v4/jobs/request",
        {},
        COMMON | JSON | {"runner-token": "glrt-1", "accept": "application/json"},
        json.dumps({"token": "glrt-1", "system_id": "s_0123456789ab", "info": INFO}).encode(),
    ),
    "update": Call(
        "PUT",
        "/api/v4/jobs/7",
        {},
        COMMON | JSON | {"job-token": "glcbt-1"},
        json.dumps({"token": "glcbt-1", "state": "running", "info": INFO}).encode(),
    ),
    "trace": Call(
        "PATCH",
        "/api/v4/jobs/7/trace",
        {"debug_trace": "false"},
        COMMON | {"content-type": "text/plain", "job-token": "glcbt-1", "content-range": "5-14"},
        LOG,
    ),
    "upload": Call(
        "POST",
        "/api/v4/jobs/7/artifacts",
        {"artifact_type": "archive"},
        {
            "user-agent": "remuda-agent",
            "job-token": "glcbt-1",
            "content-type": "multipart/form-data; boundary=b",
            "transfer-encoding": "chunked",
        },
        PART,
    ),
    "download": Call(
        "GET", "/api/v4/jobs/7/artifacts", {}, {"user-agent": "remuda-agent", "job-token": "glcbt-1"}, b""
    ),
}


def body(**changes: Any) -> Callable[[Call], Call]:
    return lambda call: replace(call, body=json.dumps(call.json | changes).encode())


def header(name: str, value: str | None) -> Callable[[Call], Call]:
    def change(call: Call) -> Call:
        rest = {key: text for key, text in call.headers.items() if key != name}
        return replace(call, headers=rest if value is None else rest | {name: value})

    return change


@pytest.mark.parametrize("endpoint", VALID)
def test_valid_requests_have_no_problems(endpoint: str) -> None:
    assert rules.endpoint_of(VALID[endpoint]) == endpoint
    assert rules.problems(endpoint, VALID[endpoint]) == []


@pytest.mark.parametrize(
    ("endpoint", "change"),
    [
        ("request", header("x-request-id", "short")),
        ("request", header("runner-token", None)),
        ("request", header("runner-token", "glrt-2")),
        ("request", header("job-token", "glcbt-1")),
        ("request", header("private-token", "glpat-1")),
        ("request", header("accept", None)),
        ("request", header("content-type", "text/plain")),
        ("request", header("user-agent", "curl")),
        ("request", body(system_id="s_1")),
        ("request", body(last_update=None)),
        ("request", body(load={"running": 1})),
        ("request", body(info={"features": {"variables": True}})),
        ("request", body(info=INFO | {"gpus": 1})),
        ("request", body(session={"url": "x" * 40_000})),
        ("request", lambda call: replace(call, body=b"token=glrt-1")),
        ("request", lambda call: replace(call, query={"token": "glrt-1"})),
        ("update", header("accept", "application/json")),
        ("update", header("runner-token", "glrt-1")),
        ("update", body(token="another")),
        ("update", body(state="pending")),
        ("update", body(exit_code=0)),
        ("update", body(results=[])),
        ("trace", header("content-range", "bytes 5-14")),
        ("trace", header("content-range", "5-15")),
        ("trace", header("content-range", None)),
        ("trace", header("content-type", "application/json")),
        ("trace", lambda call: replace(call, query={})),
        ("trace", lambda call: replace(call, body=b"")),
        ("trace", lambda call: replace(call, body=b"x" * ((1 << 20) + 1))),
        ("upload", header("transfer-encoding", None)),
        ("upload", header("content-length", "5")),
        ("upload", header("job-token", None)),
        ("upload", lambda call: replace(call, query={"expire_in": ""})),
        ("upload", lambda call: replace(call, body=PART + PART)),
        ("upload", lambda call: replace(call, body=PART.replace(b'"file"', b'"archive"'))),
        ("download", header("job-token", None)),
        ("download", lambda call: replace(call, query={"token": "glcbt-1"})),
    ],
)
def test_each_mistake_in_a_request_is_found(endpoint: str, change: Callable[[Call], Call]) -> None:
    assert rules.problems(endpoint, change(VALID[endpoint]))


def final_update(**changes: Any) -> dict[str, Any]:
    checksum = f"crc32:{crc32(LOG):08x}"
    return {"state": "success", "checksum": checksum, "output": {"checksum": checksum, "bytesize": 10}} | changes


def test_a_valid_final_update_has_no_problems() -> None:
    assert rules.update_problems(final_update(), LOG, []) == []
    failed = final_update(state="failed", failure_reason="script_failure", exit_code=1)
    assert rules.update_problems(failed, LOG, []) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"checksum": "crc32:00000000"},
        {"output": {"checksum": "crc32:00000000", "bytesize": 10}, "checksum": "crc32:00000000"},
        {"output": {"checksum": f"crc32:{crc32(LOG):08x}", "bytesize": 9}},
        {"output": {"checksum": f"crc32:{crc32(LOG):08x}"}},
        {"output": {}, "checksum": None},
        {"failure_reason": "script_failure"},
        {"state": "failed"},
        {"state": "failed", "failure_reason": "image_pull_failure"},
        {"exit_code": 3},
    ],
)
def test_each_mistake_in_a_final_update_is_found(changes: dict[str, Any]) -> None:
    assert rules.update_problems(final_update(**changes), LOG, ["script_failure"])


def test_an_acceptance_must_not_describe_a_log() -> None:
    assert rules.acceptance_problems({"state": "running"}) == []
    assert rules.acceptance_problems(final_update())
