"""Rules of the Runner API for single requests of a manager: headers, tokens, bodies, checksums. Pure functions.

Each function returns messages about the problems that it finds. `strict_gitlab` calls them.
"""

import json
import re
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.manager.core.life import ALWAYS_ACCEPTED
from remuda.wire.runner_api import FEATURES

MOST_BYTES = 1 << 20
MOST_REQUEST_BYTES = 32 << 10
_ID = re.compile(r"[0-9a-f]{32}")
_SYSTEM_ID = re.compile(r"[sr]_[0-9a-zA-Z]{12}")
_RANGE = re.compile(r"(\d+)-(\d+)")
_CHECKSUM = re.compile(r"crc32:[0-9a-f]{8}")
_FALLBACKS = ("script_failure", "runner_system_failure", "unknown_failure")
_PATHS = {
    "request": ("POST", re.compile(r"/api/v4/jobs/request")),
    "update": ("PUT", re.compile(r"/api/v4/jobs/\d+")),
    "trace": ("PATCH", re.compile(r"/api/v4/jobs/\d+/trace")),
    "upload": ("POST", re.compile(r"/api/v4/jobs/\d+/artifacts")),
    "download": ("GET", re.compile(r"/api/v4/jobs/\d+/artifacts")),
}
_INFO = {
    "name": str,
    "version": str,
    "revision": str,
    "platform": str,
    "architecture": str,
    "executor": str,
    "shell": str,
    "features": dict,
    "config": dict,
    "labels": dict,
}
_UPDATE = {"token", "info", "state", "failure_reason", "checksum", "output", "exit_code", "runtime_environment_key"}


@dataclass(frozen=True)
class Call:
    """A received request. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        try:
            content = json.loads(self.body)
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}


def payload(job_id: int, token: str, repository: str, script: list[str]) -> dict[str, Any]:
    """The smallest complete payload: with all lists, without `run`."""
    return {
        "id": job_id,
        "token": token,
        "allow_git_fetch": True,
        "job_info": {"id": job_id, "name": "strict", "stage": "test", "project_id": 7, "time_in_queue_seconds": 0.5},
        "git_info": {"repo_url": repository, "sha": "0" * 40, "ref": "main", "ref_type": "branch", "refspecs": []},
        "runner_info": {"timeout": 600, "runner_session_url": None},
        "inputs": [],
        "variables": [{"key": "GIT_STRATEGY", "value": "none", "public": True}],
        "steps": [{"name": "script", "script": script, "timeout": 600, "when": "on_success", "allow_failure": False}],
        "hooks": [],
        "image": None,
        "services": [],
        "artifacts": None,
        "cache": [],
        "credentials": [],
        "dependencies": [],
        "features": {"trace_sections": True, "failure_reasons": ["script_failure", "runner_system_failure"]},
    }


def endpoint_of(call: Call) -> str | None:
    """Name of the API call; None if the API has no such call."""
    for name, (method, path) in _PATHS.items():
        if call.method == method and path.fullmatch(call.path):
            return name
    return None


def problems(endpoint: str, call: Call) -> list[str]:
    """Problems of a request, independent of earlier requests."""
    return [f"{endpoint}: {text}" for text in [*_common_problems(endpoint, call), *_CHECKS[endpoint](call)]]


def _common_problems(endpoint: str, call: Call) -> Sequence[str]:
    wrong = []
    headers = call.headers
    by_agent = endpoint in ("upload", "download")
    if not headers.get("user-agent", "").startswith("remuda-agent" if by_agent else "remuda-manager "):
        wrong.append(f"User-Agent {headers.get('user-agent')!r}")
    if not by_agent and not _ID.fullmatch(headers.get("x-request-id", "")):
        wrong.append(f"X-Request-Id {headers.get('x-request-id')!r}")
    required, forbidden = ("runner-token", "job-token") if endpoint == "request" else ("job-token", "runner-token")
    if required not in headers or forbidden in headers:
        wrong.append(f"must have {required} and not {forbidden}")
    if any(name in headers for name in ("authorization", "private-token", "cookie")):
        wrong.append("a credential that the API does not use")
    if "token" in call.query:
        wrong.append("a token in the query")
    if (headers.get("accept", "*/*") == "application/json") != (endpoint == "request"):
        wrong.append(f"Accept {headers.get('accept')!r}")
    return wrong


def _json_problems(call: Call) -> list[str]:
    wrong = []
    if call.headers.get("content-type") != "application/json":
        wrong.append(f"Content-Type {call.headers.get('content-type')!r}")
    if not call.json:
        return [*wrong, "the body is not a JSON object"]
    if None in call.json.values():
        wrong.append("null instead of a missing key")
    info = call.json.get("info", {})
    wrong += [
        f"info.{key} {value!r}"
        for key, value in info.items()
        if not isinstance(value, _INFO.get(key, type(None))) or value == ""
    ]
    features = info.get("features", {})
    if list(features) != FEATURES or not all(isinstance(value, bool) for value in features.values()):
        wrong.append("info.features must have all features, as booleans")
    if call.query:
        wrong.append(f"a query {call.query}")
    return wrong


def _request(call: Call) -> list[str]:
    wrong, body = _json_problems(call), call.json
    if unknown := set(body) - {"token", "system_id", "last_update", "info", "session"}:
        wrong.append(f"unknown keys {unknown}")
    if body.get("token") != call.headers.get("runner-token"):
        wrong.append("the token in the body is not that of the header")
    if not _SYSTEM_ID.fullmatch(str(body.get("system_id"))):
        wrong.append(f"system_id {body.get('system_id')!r}")
    if len(call.body) > MOST_REQUEST_BYTES:
        wrong.append(f"{len(call.body)} bytes")
    return wrong


def _update(call: Call) -> list[str]:
    wrong, body = _json_problems(call), call.json
    if unknown := set(body) - _UPDATE:
        wrong.append(f"unknown keys {unknown}")
    if body.get("token") != call.headers.get("job-token"):
        wrong.append("the token in the body is not that of the header")
    if body.get("state") not in ("running", "success", "failed"):
        wrong.append(f"state {body.get('state')!r}")
    if "exit_code" in body and (not isinstance(body["exit_code"], int) or body["exit_code"] <= 0):
        wrong.append(f"exit_code {body['exit_code']!r}")
    return wrong


def _trace(call: Call) -> list[str]:
    wrong = []
    if call.query not in ({"debug_trace": "false"}, {"debug_trace": "true"}):
        wrong.append(f"query {call.query}")
    if call.headers.get("content-type") != "text/plain":
        wrong.append(f"Content-Type {call.headers.get('content-type')!r}")
    if not 0 < len(call.body) <= MOST_BYTES:
        wrong.append(f"{len(call.body)} bytes in one piece")
    match = _RANGE.fullmatch(call.headers.get("content-range", ""))
    if match is None or int(match[2]) - int(match[1]) + 1 != len(call.body):
        wrong.append(f"Content-Range {call.headers.get('content-range')!r} of {len(call.body)} bytes")
    return wrong


def _upload(call: Call) -> list[str]:
    wrong = []
    if not set(call.query) <= {"artifact_format", "artifact_type", "expire_in"} or "" in call.query.values():
        wrong.append(f"query {call.query}")
    if call.headers.get("transfer-encoding") != "chunked" or "content-length" in call.headers:
        wrong.append("not sent with chunked encoding")
    if not call.headers.get("content-type", "").startswith("multipart/form-data; boundary="):
        wrong.append(f"Content-Type {call.headers.get('content-type')!r}")
    elif call.body.count(b"Content-Disposition: form-data;") != 1 or b'name="file"; filename="' not in call.body:
        wrong.append("must have one part, named file")
    return wrong


def _download(call: Call) -> list[str]:
    return [] if call.query in ({}, {"direct_download": "true"}) and not call.body else [f"query {call.query}"]


_CHECKS = {"request": _request, "update": _update, "trace": _trace, "upload": _upload, "download": _download}


def uploaded_file(call: Call) -> tuple[str, bytes]:
    """Name and content of the file of an upload."""
    head, _, rest = call.body.partition(b"\r\n\r\n")
    boundary = call.headers["content-type"].partition("boundary=")[2].encode()
    name = re.search(rb'filename="([^"]*)"', head)
    return name[1].decode() if name else "", rest.removesuffix(b"\r\n--" + boundary + b"--\r\n")


def acceptance_problems(body: dict[str, Any]) -> list[str]:
    """Problems of the first PUT with the state running, which must not describe a log."""
    return [f"{key} in the acceptance" for key in ("checksum", "output", "exit_code", "failure_reason") if key in body]


def update_problems(body: dict[str, Any], trace: bytes, accepted: Collection[str]) -> list[str]:
    """Problems of a later state, compared with the trace that the server has."""
    wrong = []
    output, state = body.get("output", {}), body.get("state")
    size = output.get("bytesize")
    if body.get("checksum") != output.get("checksum"):
        wrong.append("checksum differs from output.checksum")
    if not isinstance(size, int) or not _CHECKSUM.fullmatch(str(output.get("checksum"))):
        return [*wrong, f"output {output}"]
    if size > len(trace) or (state != "running" and size != len(trace)):
        wrong.append(f"bytesize {size}, the log has {len(trace)}")
    elif output["checksum"] != f"crc32:{zlib.crc32(trace[:size]):08x}":
        wrong.append(f"checksum {output['checksum']} of {size} bytes is wrong")
    reason = body.get("failure_reason")
    if (reason is not None) != (state == "failed"):
        wrong.append(f"failure_reason {reason!r} with {state}")
    if reason is not None and reason not in {*accepted, *ALWAYS_ACCEPTED, *_FALLBACKS}:
        wrong.append(f"failure_reason {reason!r} is not one that the server listed")
    if "exit_code" in body and state != "failed":
        wrong.append(f"exit_code with {state}")
    return wrong
