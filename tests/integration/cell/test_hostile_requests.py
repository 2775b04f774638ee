"""Malicious and malformed requests: each is refused with a clear error, without a traceback or other effects."""

import secrets
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from tests.support.cells.served_cell import ServedCell, commit_file

PIPELINE = "only:\n  script: [echo hello]\n"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCell]:
    """One cell for all tests: damage by one of them would show in a later one."""
    with ServedCell(tmp_path_factory.mktemp("hostile") / "cell") as served:
        yield served


@pytest.fixture
def project(cell: ServedCell) -> int:
    return cell.new_project(f"p{secrets.token_hex(4)}")


def list_paths(cell: ServedCell) -> list[str]:
    listed: list[str] = [project["path_with_namespace"] for project in cell.api("GET", "/projects?per_page=100").json()]
    return listed


@pytest.mark.parametrize(
    "path",
    [
        "../evil",
        "a/../../evil",
        "..",
        "root/..",
        ".",
        "api/v4",
        "-/health",
        "root/x.git",
        "root/x.atom",
        "root/x.",
        "root/.git-mirrors",
        ".tmp/x",
        "-x",
        "root//x",
        "/root/x",
        "root/x/",
        "root/a b",
        "root/ä",
        "root/x\n",
        "root/x\u0000",
        "x" * 300,
        "/".join("x" * 25),
    ],
)
def test_names_that_no_project_may_have(cell: ServedCell, path: str) -> None:
    before = list_paths(cell), sorted((cell.settings.data / "repos").glob("*/*.git"))
    refused = cell.api("POST", "/projects", {"path": path})
    assert refused.status == 400, refused
    assert (list_paths(cell), sorted((cell.settings.data / "repos").glob("*/*.git"))) == before


def test_a_name_is_taken_without_regard_to_case(cell: ServedCell) -> None:
    cell.new_project("shop")
    repos = list((cell.settings.data / "repos").glob("*/*.git"))
    refused = cell.api("POST", "/projects", {"path": "SHOP"})
    assert (refused.status, refused.json()) == (400, {"message": {"path": ["has already been taken"]}})
    assert len(list((cell.settings.data / "repos").glob("*/*.git"))) == len(repos)


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "a/../../outside",
        "/etc/passwd",
        ".git/config",
        "sub/.git/hooks/post-checkout",
        ".GIT/config",
        ".git./config",
        ".git /config",
        "git~1/config",
        ".g\u200cit/config",
        ".git::$INDEX_ALLOCATION/config",
        "",
        ".",
        "a//b",
        "a/",
        "a\nM 100644 inline b",
        "a\u0000b",
        "x" * 5000,
        "x" * 256,
    ],
)
def test_files_that_no_commit_may_touch(cell: ServedCell, project: int, path: str) -> None:
    for action in (
        {"action": "create", "file_path": path, "content": "x"},
        {"action": "move", "file_path": "fine", "previous_path": path},
    ):
        body = {"branch": "main", "commit_message": "Evil", "actions": [action]}
        refused = cell.api("POST", f"/projects/{project}/repository/commits", body)
        assert refused.status == 400, refused
    assert cell.api("GET", f"/projects/{project}").json()["empty_repo"] is True


@pytest.mark.parametrize(
    "branch",
    ["", "-x", "a..b", "a b", "a\nfrom x", "x.lock", "a//b", "/a", "a/", "@", "a@{1}", "HEAD", "0" * 40, "a~1", ".a"],
)
def test_names_that_no_branch_may_have(cell: ServedCell, project: int, branch: str) -> None:
    actions = [{"action": "create", "file_path": "a", "content": "x"}]
    body = {"branch": branch, "commit_message": "Evil", "actions": actions}
    assert cell.api("POST", f"/projects/{project}/repository/commits", body).status == 400
    assert cell.api("POST", "/projects", {"name": "other", "default_branch": branch}).status == (400 if branch else 201)


def test_texts_that_look_like_git_commands(cell: ServedCell, project: int) -> None:
    body = {
        "branch": "main",
        "commit_message": "data 3\nabc\nreset refs/heads/evil\n",
        "author_name": "A <b>\ncommitter x",
        "author_email": "a@b>\nreset refs/heads/evil",
        "actions": [{"action": "create", "file_path": "a", "content": "reset refs/heads/evil\n"}],
    }
    created = cell.api("POST", f"/projects/{project}/repository/commits", body)
    assert created.status == 201, created
    assert [branch["name"] for branch in cell.api("GET", f"/projects/{project}/repository/branches").json()] == ["main"]
    assert created.json()["message"].startswith("data 3\nabc\nreset")
    for ref in ("--output=/tmp/x", "main^{tree}", "HEAD@{0}", ":/data", "main:a", "..", "%2e%2e", "refs/heads/main"):
        assert cell.api("GET", f"/projects/{project}/repository/commits/{ref}").status == 404
    for path in ("..%2f..%2fcell.sqlite", "%2e%2e/x", "a%00b", "-x", "a%0ab"):
        assert cell.api("GET", f"/projects/{project}/repository/files/{path}/raw?ref=main").status in (400, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/root/../root/app.git/info/refs?service=git-upload-pack",
        "/..%2f..%2fetc.git/info/refs?service=git-upload-pack",
        "/root%2Fapp%00.git/info/refs?service=git-upload-pack",
        "/.git/info/refs?service=git-upload-pack",
        "/root/app.git/info/refs?service=git-shell",
        "/root/app.git/../../cell.sqlite",
        "/root/app.git/git-upload-archive",
        "/api/v4/projects/%ff%fe",
        "/api/v4/projects/99999999999999999999999999",
        "/api/v4/projects/1/jobs/99999999999999999999999999",
        "/api/v4/projects/1/jobs/1e9",
        "/api/v4/jobs/99999999999999999999999999/trace",
        "/api/v4/nothing",
        "/api/v4/runners/0x1",
        "//api/v4/user",
    ],
)
def test_invalid_urls(cell: ServedCell, path: str) -> None:
    if "root/app" not in list_paths(cell):
        cell.new_project("app", PIPELINE)
    answer = cell.send("GET", path, PRIVATE_TOKEN=cell.token)
    assert answer.status in (400, 403, 404, 405), answer
    assert b"Traceback" not in answer.body


def test_unsupported_methods(cell: ServedCell) -> None:
    answer = cell.api("PATCH", "/projects")
    assert (answer.status, answer.headers["Content-Type"]) == (405, "application/json")
    assert cell.api("DELETE", "/jobs/request").status == 405
    assert cell.api("GET", "/jobs/request").status == 405


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/projects"),
        ("POST", "/runners"),
        ("POST", "/runners/verify"),
        ("PUT", "/jobs/1"),
        ("POST", "/projects/1/pipeline"),
        ("POST", "/projects/1/variables"),
        ("POST", "/user/runners"),
    ],
)
@pytest.mark.parametrize(
    "body", [b"{", b"null", b"[[[[", b"[" * 200_000, b'{"name": {"a": []}, "token": [], "ref": 5, "key": {}}', b"\x00"]
)
def test_malformed_bodies(cell: ServedCell, project: int, method: str, path: str, body: bytes) -> None:
    answer = cell.api(method, path.replace("/1/", f"/{project}/"), body, Content_Type="application/json")
    assert answer.status in (400, 403), answer
    assert set(answer.json()) <= {"error", "message"}


def test_huge_bodies(cell: ServedCell, project: int) -> None:
    large = b'{"name": "' + b"x" * 1_100_000 + b'"}'
    for path in ("/projects", "/user/runners", f"/projects/{project}/variables"):
        refused = cell.api("POST", path, large, Content_Type="application/json")
        assert (refused.status, "413" in refused.json()["message"]) == (413, True)
    commit_file(cell, project, "x" * 3_000_000, path="big")


def test_aborted_connections(cell: ServedCell) -> None:
    address = urlsplit(cell.url)
    head = b"POST /api/v4/projects HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: %s\r\n" % cell.token.encode()
    for beginning in (
        head + b"Content-Length: 100\r\n\r\n{",
        head + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"nam',
        b"GET / HT",
        b"\x16\x03\x01\x00\x00",
    ):
        with socket.create_connection((address.hostname or "", address.port or 0)) as caller:
            caller.sendall(beginning)
    threads = [threading.Thread(target=cell.new_project, args=(f"after{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {f"root/after{number}" for number in range(8)} <= set(list_paths(cell))
