"""Requests that are too large, too long, too frequent or too slow get the status that the reference documents."""

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.cells.served_cell import ServedCell

from remuda.cell.http.edge.connections import HEAD_BYTES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "security.md"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCell]:
    """One cell for all tests: damage by one of them would show in a later one."""
    with ServedCell(tmp_path_factory.mktemp("limits") / "cell", body_silent_seconds=1.0) as served:
        yield served


@pytest.fixture(scope="module")
def project(cell: ServedCell) -> int:
    return cell.new_project("app", "build:\n  script: make\n")


def send_raw(cell: ServedCell, *pieces: bytes, pause: float = 0.0) -> tuple[int, bytes]:
    """Send raw bytes; return status and body of the response, or status 0 if the connection was closed."""
    address = urlsplit(cell.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=20) as caller:
        try:
            for piece in pieces:
                caller.sendall(piece)
                time.sleep(pause)
            answer = http.client.HTTPResponse(caller)
            answer.begin()
            return answer.status, answer.read()
        except (ConnectionError, http.client.BadStatusLine):
            return 0, b""


HEAD = b"GET /api/v4/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        [HEAD, b"X-Long: ", *[b"a" * 8192] * 100, b"\r\n\r\n"],
        [HEAD, *[b"X-Many-%d: x\r\n" % number for number in range(20_000)], b"\r\n"],
        [b"GET /", *[b"a" * 8192] * 100, b" HTTP/1.1\r\nHost: x\r\n\r\n"],
        [HEAD + b"X-Long: " + b"a" * (HEAD_BYTES + 1) + b"\r\n\r\n"],
        [HEAD, b"a" * 300_000, b": x\r\n\r\n"],
    ],
    ids=["long value", "many headers", "long address", "at once", "long name"],
)
def test_too_long_heads(cell: ServedCell, pieces: list[bytes]) -> None:
    status, body = send_raw(cell, *pieces)
    assert status in (431, 0), body
    if status:
        assert "431" in json.loads(body)["message"]
    assert send_raw(cell, HEAD, b"X-Fine: ", b"a" * 30_000, b"\r\n\r\n")[0] in (200, 401)


def test_a_too_long_head_gets_431(cell: ServedCell) -> None:
    status, body = send_raw(cell, HEAD + b"X-Long: " + b"a" * (HEAD_BYTES + 1) + b"\r\n\r\n")
    assert (status, json.loads(body)) == (
        431,
        {"message": f"431 Request Header Fields Too Large - at most {HEAD_BYTES} bytes"},
    )


@pytest.mark.parametrize(
    "line",
    [
        b"GET /api/v4/projects/\xff\xfe HTTP/1.1",
        b"GET /api/v4/projects?search=\xff HTTP/1.1",
        b"GET /api/v4/projects/%ff%00 HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"\x00\x00\x00\x00",
        b"GET http://[::1 HTTP/1.1",
        b"GET /api/v4/projects?" + b"a=1&" * 5000 + b" HTTP/1.1",
    ],
)
def test_malformed_request_lines(cell: ServedCell, line: bytes) -> None:
    status, body = send_raw(cell, line + b"\r\nHost: x\r\nPRIVATE-TOKEN: " + cell.token.encode() + b"\r\n\r\n")
    assert status == 0 or 400 <= status < 500 or status == 200, body
    assert b"Traceback" not in body


@pytest.mark.parametrize(
    "headers",
    [
        {"PRIVATE-TOKEN": "\xff\xfe"},
        {"PRIVATE-TOKEN": "x" * 20_000},
        {"Authorization": "Basic \xff"},
        {"Authorization": "Bearer"},
        {"JOB-TOKEN": "glcbt-" + "a." * 10_000},
    ],
)
def test_malformed_tokens(cell: ServedCell, headers: dict[str, str]) -> None:
    for path in ("/api/v4/user", "/api/v4/projects", "/api/v4/jobs/1/artifacts", "/root/app.git/info/refs"):
        connection = cell.connect()
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status in (400, 401, 403, 404), (path, answer.read())
        connection.close()


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize("depth", [101, 900, 5_000, 100_000])
@pytest.mark.parametrize("field", ["inputs", "description", "variables"])
def test_deep_json(cell: ServedCell, project: int, depth: int, field: str) -> None:
    body = b'{"ref":"main","description":"d","cron":"0 0 * * *","%s":%s}' % (field.encode(), nested(depth))
    for path in (f"/projects/{project}/pipeline_schedules", f"/projects/{project}/pipeline"):
        answer = cell.api("POST", path, body, Content_Type="application/json")
        assert answer.status == 400, answer


BIG = "x" * 500_000


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/user/runners", {"runner_type": "instance_type", "tag_list": ["a"] * 200_000}),
        ("POST", "/user/runners", {"runner_type": "instance_type", "tag_list": [str(n) for n in range(51)]}),
        ("POST", "/user/runners", {"runner_type": "instance_type", "tag_list": ",".join(map(str, range(100_000)))}),
        ("POST", "/user/runners", {"runner_type": "instance_type", "tag_list": ["x" * 256]}),
        ("POST", "/user/runners", {"runner_type": "instance_type", "description": "x" * 1025}),
        ("POST", "/user/runners", {"runner_type": "instance_type", "maintenance_note": BIG}),
        ("POST", "/projects", {"name": "x" * 256}),
        ("POST", "/projects", {"name": "fine", "description": "x" * 2001}),
        ("POST", "/projects", {"name": "nul\0"}),
        ("POST", "/groups", {"name": "x" * 256, "path": "g"}),
        ("POST", "/groups", {"name": "g", "path": "x" * 256}),
        ("POST", "/users", {"username": "x" * 256, "name": "x", "email": "a@b.c"}),
        ("POST", "/users", {"username": "fine", "name": "x" * 256, "email": "a@b.c"}),
        ("POST", "/projects/{id}/variables", {"key": "x" * 256, "value": "v"}),
        ("POST", "/projects/{id}/variables", {"key": "NUL", "value": "a\0b"}),
        ("POST", "/projects/{id}/variables", {"key": "LONG", "value": "x" * 10_001}),
        ("POST", "/projects/{id}/variables", {"key": "K", "value": "v", "description": "x" * 256}),
        ("POST", "/projects/{id}/variables", {"key": "K", "value": "v", "environment_scope": "x" * 256}),
        ("POST", "/projects/{id}/pipeline", {"ref": "main", "variables": [{"key": "K", "value": "x" * 100_001}]}),
        ("POST", "/projects/{id}/pipeline", {"ref": "main", "variables": [{"key": "K", "value": "a\0"}]}),
        ("POST", "/projects/{id}/triggers", {"description": "x" * 256}),
        ("POST", "/user/personal_access_tokens", {"name": "x" * 256, "scopes": ["api"]}),
        ("POST", "/projects/{id}/pipeline_schedules", {"description": "x" * 256, "ref": "main", "cron": "0 0 * * *"}),
    ],
)
def test_too_long_values(cell: ServedCell, project: int, method: str, path: str, body: Any) -> None:
    answer = cell.api(method, path.replace("{id}", str(project)), body)
    if isinstance(body.get("tag_list"), list) and set(body["tag_list"]) == {"a"}:
        assert answer.status in (201, 400), "the same tag many times is one tag"
        return
    assert answer.status == 400, answer


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/projects", {"name": "a\0b"}, "name"),
        ("/projects", {"name": "a", "description": "a\0b"}, "description"),
        ("/projects/{id}/pipeline_schedules", {"description": "\0", "ref": "main", "cron": "0 1 * * *"}, "description"),
        ("/projects/{id}/triggers", {"description": "\0"}, "description"),
        ("/user/runners", {"runner_type": "instance_type", "description": "\0"}, "description"),
        ("/user/runners", {"runner_type": "instance_type", "tag_list": ["a", "b\0"]}, "tag_list[1]"),
        ("/projects/{id}/deploy_tokens", {"name": "\0", "scopes": ["read_repository"]}, "name"),
        ("/projects/{id}/access_tokens", {"name": "\0", "scopes": ["api"], "access_level": 30}, "name"),
        ("/projects/{id}/releases", {"tag_name": "v1", "ref": "main", "name": "\0"}, "name"),
        ("/projects/{id}/repository/commits", {"branch": "main", "commit_message": "a\0b"}, "commit_message"),
        ("/projects/{id}/pipeline", {"ref": "main", "variables": [{"key": "K", "value": "\0"}]}, "variables[0][value]"),
    ],
)
def test_a_nul_character_is_refused_with_the_name_of_the_field(
    cell: ServedCell, project: int, path: str, body: dict[str, Any], field: str
) -> None:
    if path.endswith("/commits"):
        body = body | {"actions": []}
    answer = cell.api("POST", path.replace("{id}", str(project)), body)
    assert (answer.status, answer.json()["message"]) == (400, {field: ["must not contain a NUL character"]})


def test_the_content_of_a_file_may_have_nul_characters(cell: ServedCell, project: int) -> None:
    action = {"action": "create", "file_path": "data", "content": "a\0b"}
    body = {"branch": "main", "commit_message": "Add data", "actions": [action]}
    assert cell.api("POST", f"/projects/{project}/repository/commits", body).status == 201
    change = {"branch": "main", "commit_message": "Add more", "content": "c\0d"}
    assert cell.api("POST", f"/projects/{project}/repository/files/more", change).status == 201
    for name, content in (("data", b"a\0b"), ("more", b"c\0d")):
        raw = cell.api("GET", f"/projects/{project}/repository/files/{name}/raw?ref=main")
        assert raw.body == content


def test_a_million_tags(cell: ServedCell) -> None:
    tags = ",".join(map(str, range(1_000_000)))
    answer = cell.api("POST", "/user/runners", {"runner_type": "instance_type", "tag_list": tags})
    assert answer.status == 413
    form = b"runner_type=instance_type" + b"&tag_list[]=a" * 60_000
    answer = cell.api("POST", "/user/runners", form, Content_Type="application/x-www-form-urlencoded")
    assert answer.status == 400
    body = {"token": "x", "info": {"features": {f"f{n}": True for n in range(10_000)}}}
    assert cell.send("POST", "/api/v4/jobs/request", body).status == 413


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
)
@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00", b'{"name":"\xc3\x28"}', b'{"name":"\\ud800"}', b"name=%ff%00", b"\0" * 1000]
)
def test_bodies_that_are_no_text(cell: ServedCell, content_type: str, body: bytes) -> None:
    for path in ("/projects", "/user/runners", "/runners"):
        answer = cell.api("POST", path, body, Content_Type=content_type)
        assert 400 <= answer.status < 500, answer


def test_slow_bodies_are_aborted(cell: ServedCell) -> None:
    head = b"POST /api/v4/projects HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\nPRIVATE-TOKEN: "
    pieces = [head + cell.token.encode() + b'\r\n\r\n{"name": "', *[b"x"] * 12]
    status, body = send_raw(cell, *pieces, pause=0.3)
    assert status in (408, 0), body


def test_too_many_requests_get_429_and_retry_after(tmp_path: Path) -> None:
    rates: dict[str, Any] = {"requests_per_minute": 20, "anonymous_requests_per_minute": 10}
    with ServedCell(tmp_path / "cell", **rates) as cell:
        responses = [cell.api("GET", "/version") for _ in range(30)]
        assert responses[0].headers["RateLimit-Name"] == "user_by_address"
        assert responses[5].headers["RateLimit-Limit"] == "20"
        refused = [answer for answer in responses if answer.status == 429]
        assert 5 <= len(refused) <= 11
        assert int(refused[0].headers["Retry-After"]) in (1, 2, 3)
        assert refused[0].headers["RateLimit-Remaining"] == "0"
        assert re.match(r"429 Too Many Requests - .* try again in \d seconds", refused[0].json()["message"])
        assert cell.send("GET", "/-/health").status == 200
        # Callers without an accepted token share the limit of their address.
        answers = [cell.send("GET", "/api/v4/projects", PRIVATE_TOKEN=f"wrong{number}").status for number in range(15)]
        assert set(answers) == {401, 429}


@pytest.mark.parametrize("path", ["/api/v4/nowhere", "/oauth/discovery/keys"])
def test_an_unchecked_token_is_limited_by_its_address(cell: ServedCell, path: str) -> None:
    for _ in range(2):
        answer = cell.send("GET", path, PRIVATE_TOKEN="invented")
        assert answer.headers["RateLimit-Name"] == "user_by_address"


def test_runners_are_not_limited_by_the_default(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell", requests_per_minute=100) as cell:
        runner = cell.new_runner()
        cell.new_project("app", "build:\n  script: make\n")
        job = runner.take()
        for number in range(300):
            assert runner.patch(job, number, b"x").status == 202
            assert runner.ask().status == 204


def test_the_security_page_lists_the_statuses_of_limits() -> None:
    statuses = set(re.findall(r"\| (4\d\d)", PAGE.read_text()))
    assert {"400", "408", "413", "429", "431"} <= statuses
