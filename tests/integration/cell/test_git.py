"""git clients clone, fetch and push over HTTP, and pushes start pipelines."""

import asyncio
import hashlib
import os
import shutil
import socket
import struct
import subprocess
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from tests.support.cells.served_cell import ScriptedRunner, ServedCell
from tests.support.git_client import Clone

from remuda.cell.git import program
from remuda.cell.git.port import GitClient, GitRequest
from remuda.cell.git.program import GitProgram, end_git
from remuda.cell.git.push_files import PushFiles
from remuda.cell.git.push_hook import HOOK
from remuda.cell.git.repositories import GitRepos
from remuda.cell.http.edge.errors import ClientGoneError
from remuda.cell.projects.projects import Projects
from remuda.cell.values import Project
from remuda.testing.waiting import wait_until

PIPELINE = "only:\n  script: [echo hello]\n"


def address(cell: ServedCell, project: str, password: str, user: str = "oauth2") -> str:
    return f"{cell.url.replace('://', f'://{user}:{password}@')}/{project}.git"


@pytest.fixture
def clone(cell: ServedCell, tmp_path: Path) -> Clone:
    """An empty working copy whose origin is an empty project `root/app`."""
    cell.new_project("app")
    clone = Clone(tmp_path / "work")
    clone.run("init", "--quiet", "-b", "main")
    clone.run("remote", "add", "origin", address(cell, "root/app", cell.token))
    return clone


def list_pipelines(cell: ServedCell, project: str = "root%2Fapp") -> list[dict[str, object]]:
    rows: list[dict[str, object]] = cell.api("GET", f"/projects/{project}/pipelines").json()
    return rows


def allow_force(cell: ServedCell) -> None:
    answer = cell.api("PATCH", "/projects/root%2Fapp/protected_branches/main", {"allow_force_push": True})
    assert answer.status == 200, answer


def test_a_push_starts_a_pipeline_for_each_ref(cell: ServedCell, clone: Clone) -> None:
    first = clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main")
    [pipeline] = list_pipelines(cell)
    assert (pipeline["sha"], pipeline["ref"], pipeline["source"]) == (first, "main", "push")
    clone.run("tag", "-a", "v1", "-m", "one")
    clone.run("push", "--quiet", "origin", "v1", "main:feature")
    assert sorted(str(row["ref"]) for row in list_pipelines(cell)) == ["feature", "main", "v1"]
    assert all(row["sha"] == first for row in list_pipelines(cell))
    clone.run("push", "--quiet", "origin", "main")
    clone.run("push", "--quiet", "origin", ":feature")
    assert len(list_pipelines(cell)) == 3
    clone.run("push", "--quiet", "origin", "main:feature")
    assert len(list_pipelines(cell)) == 4, "a branch that was deleted is new again"


@pytest.mark.parametrize("ref", ["refs/heads/feature", "refs/tags/v1"])
@pytest.mark.parametrize("packed", [False, True])
def test_job_outlives_branch(cell: ServedCell, runner: ScriptedRunner, clone: Clone, ref: str, packed: bool) -> None:
    clone.commit(README="the default branch, which cannot be deleted")
    clone.run("push", "--quiet", "origin", "HEAD:main")
    clone.commit(**{".gitlab-ci.yml": "a:\n  script: [x]\nb:\n  script: [x]\n"})
    clone.run("push", "--quiet", "origin", f"HEAD:{ref}")
    if packed:
        [repo] = (cell.settings.data / "repos").glob("*/*.git")
        clone.run("--git-dir", str(repo), "pack-refs", "--all")
    with_branch = runner.take()["git_info"]
    assert [spec.partition(":")[0] for spec in with_branch["refspecs"]] == [
        f"+refs/pipelines/{list_pipelines(cell)[0]['id']}",
        f"+{ref}",
    ]
    clone.run("push", "--quiet", "origin", f":{ref}")
    without_branch = runner.take()["git_info"]
    assert without_branch["refspecs"] == with_branch["refspecs"][:1]
    clone.run("fetch", "--quiet", without_branch["repo_url"], *without_branch["refspecs"])


def test_before_sha_of_a_forced_push(cell: ServedCell, clone: Clone) -> None:
    first = clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main")
    allow_force(cell)
    clone.run("commit", "--quiet", "--amend", "-m", "Another")
    clone.run("push", "--quiet", "--force", "origin", "main")
    newest = cell.api("GET", f"/projects/root%2Fapp/pipelines/{list_pipelines(cell)[0]['id']}").json()
    assert newest["before_sha"] == first
    assert newest["sha"] != first


def test_pushes_that_start_nothing(cell: ServedCell, clone: Clone) -> None:
    clone.commit(README="nothing")
    clone.run("push", "--quiet", "origin", "main")
    assert list_pipelines(cell) == []
    clone.commit("No thanks [ci skip]", **{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main")
    assert [pipeline["status"] for pipeline in list_pipelines(cell)] == ["skipped"]
    clone.commit()
    clone.run("push", "--quiet", "-o", "ci.skip", "origin", "main")
    assert [pipeline["status"] for pipeline in list_pipelines(cell)] == ["skipped", "skipped"]
    clone.run("push", "--quiet", "origin", "main:other")
    assert [pipeline["status"] for pipeline in list_pipelines(cell)] == ["pending", "skipped", "skipped"], (
        "ci.skip was for main only"
    )
    clone.commit()
    clone.run("push", "--quiet", "origin", "main")
    assert [pipeline["status"] for pipeline in list_pipelines(cell)] == ["pending", "pending", "skipped", "skipped"]
    [repo] = (cell.settings.data / "repos").glob("*/*.git")
    assert not (repo / "push-notes").exists()


def test_a_job_fetches_as_a_runner_does(cell: ServedCell, clone: Clone, runner: ScriptedRunner, tmp_path: Path) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    sha = clone.commit(file="content")
    clone.run("push", "--quiet", "origin", "main")
    job = runner.take()
    git_info = job["git_info"]
    assert git_info["sha"] == sha
    allow_force(cell)
    clone.run("commit", "--quiet", "--amend", "-m", "Moved on")
    clone.run("push", "--quiet", "--force", "origin", "main")
    build = Clone(tmp_path / "build")
    build.run("init", "--quiet")
    build.run("remote", "add", "origin", git_info["repo_url"])
    build.run("fetch", "origin", *git_info["refspecs"], "--depth", "1", "--prune", "--quiet")
    build.run("checkout", "-f", "-q", git_info["sha"])
    assert (build.folder / "file").read_text() == "content"
    assert cell.api("GET", f"/projects/root%2Fapp/jobs/{job['id']}").json()["started_at"], (
        "a fetch acknowledges the job"
    )
    build.commit(file="other")
    assert "403" in build.run("push", "origin", "HEAD:main", ok=False).stderr
    runner.put(job, "success")
    build.run("fetch", "origin", ok=False)


def test_who_may_fetch(cell: ServedCell, clone: Clone, runner: ScriptedRunner) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main")
    cell.disable_job_token_allowlist(cell.new_project("secret", PIPELINE))
    job = runner.take()
    path = "/info/refs?service=git-upload-pack"
    nobody = cell.send("GET", f"/root/app.git{path}")
    assert nobody.status == 401
    assert nobody.headers["WWW-Authenticate"].startswith("Basic ")
    assert cell.send("GET", f"/root/none.git{path}").status == 401
    for user, password, project, ok in (
        ("anyone", cell.token, "root/app", True),
        ("anyone", cell.token, "ROOT/App", True),
        ("anyone", cell.token, "root/none", False),
        ("anyone", cell.token[:-1], "root/app", False),
        ("gitlab-ci-token", job["token"], "root/app", True),
        ("gitlab-ci-token", job["token"], "root/secret", True),  # the user who started the job may
        ("gitlab-ci-token", job["token"], "root/none", False),
        ("gitlab-ci-token", job["token"][:-3], "root/app", False),
        ("gitlab-ci-token", cell.token, "root/app", False),
        ("anyone", runner.token, "root/app", False),
    ):
        clone.run("ls-remote", address(cell, project, password, user), ok=ok)
    dumb = cell.send("GET", "/root/app.git/info/refs", PRIVATE_TOKEN=cell.token)
    assert dumb.status == 403
    assert cell.send("GET", "/root/app.git/HEAD", PRIVATE_TOKEN=cell.token).status == 404
    assert cell.send("GET", "/root/app.git/objects/info/packs", PRIVATE_TOKEN=cell.token).status == 404


def test_the_cells_own_refs_cannot_be_pushed(cell: ServedCell, clone: Clone) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main")
    refused = clone.run("push", "origin", "HEAD:refs/pipelines/1", "HEAD:refs/pipelines/77", ok=False)
    assert "hidden ref" in refused.stderr
    assert "refs/pipelines/1\n" in clone.run("ls-remote", "origin").stdout
    assert "refs/pipelines/77" not in clone.run("ls-remote", "origin").stdout


@pytest.mark.parametrize("version", ["0", "2"])
def test_much_data_both_ways_chunked(cell: ServedCell, clone: Clone, tmp_path: Path, version: str) -> None:
    (clone.folder / "big").write_bytes(os.urandom(5_000_000))
    for number in range(300):
        (clone.folder / f"file{number}").write_text(f"{number}\n" * number)
    sha = clone.commit()
    # git sends a body that exceeds the buffer chunked, and compresses a request for many refs.
    clone.run("-c", "http.postBuffer=65536", "push", "--quiet", "origin", "main")
    for number in range(60):
        clone.run("update-ref", f"refs/heads/b{number}", clone.commit())
    clone.run("push", "--quiet", "--all", "origin")
    other = Clone(tmp_path / "other")
    config = ("-c", f"protocol.version={version}")
    other.run(*config, "clone", "--quiet", address(cell, "root/app", cell.token), "copy")
    copied = Clone(other.folder / "copy")
    assert copied.run("rev-parse", "origin/main~60").stdout.strip() == sha
    assert (copied.folder / "big").read_bytes() == (clone.folder / "big").read_bytes()
    clone.commit(late="x")
    clone.run("push", "--quiet", "origin", "main")
    copied.run(*config, "pull", "--quiet")
    assert (copied.folder / "late").exists()


def test_a_gzipped_request(cell: ServedCell, clone: Clone) -> None:
    sha = clone.commit(file="x")
    clone.run("push", "--quiet", "origin", "main")
    want = f"want {sha} no-progress\n"
    body = f"{len(want) + 4:04x}{want}00000009done\n".encode()
    packed = zlib.compressobj(wbits=31)
    answer = cell.send(
        "POST",
        "/root/app.git/git-upload-pack",
        packed.compress(body) + packed.flush(),
        PRIVATE_TOKEN=cell.token,
        Content_Type="application/x-git-upload-pack-request",
        Content_Encoding="gzip",
    )
    assert answer.status == 200
    assert b"PACK" in answer.body


@pytest.mark.parametrize("service", ["git-upload-pack", "git-receive-pack"])
def test_a_compressed_request_with_too_many_lines(cell: ServedCell, clone: Clone, service: str) -> None:
    """A few compressed kilobytes can hold so many lines that git needs gigabytes of memory for them."""
    sha = clone.commit(file="x")
    clone.run("push", "--quiet", "origin", "main")
    if service == "git-upload-pack":
        first, more, last = f"0032want {sha}\n0000", f"0032have {'1' * 40}\n", b"0009done\n"
    else:
        more = f"0063{'0' * 40} {sha} refs/heads/xx"
        first = more.replace("0063", "0071", 1).replace("/xx", "/b\0 report-status")
        pack = b"PACK" + struct.pack(">II", 2, 0)
        last = b"0000" + pack + hashlib.sha1(pack).digest()
    assert (int(first[:4], 16), int(more[:4], 16)) == (len(first.removesuffix("0000")), len(more))

    def send(count: int) -> bytes:
        packed = zlib.compressobj(wbits=31)
        answer = cell.send(
            "POST",
            f"/root/app.git/{service}",
            packed.compress((first + more * count).encode() + last) + packed.flush(),
            PRIVATE_TOKEN=cell.token,
            Content_Type=f"application/x-{service}-request",
            Content_Encoding="gzip",
        )
        assert answer.status == 200
        return answer.body

    assert send(10) != b""
    assert send(1_500_000) == b""


def begin_push(cell: ServedCell, content_length: int) -> socket.socket:
    """Connect, and send the head of a push to `root/app`."""
    address = urlsplit(cell.url)
    caller = socket.create_connection((address.hostname or "", address.port or 0))
    caller.sendall(
        b"POST /root/app.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nPRIVATE-TOKEN: %s\r\n"
        b"Content-Type: application/x-git-receive-pack-request\r\nContent-Length: %d\r\n\r\n"
        % (cell.token.encode(), content_length)
    )
    return caller


def wait_for_aborted_push(cell: ServedCell) -> None:
    route = "/{path}.git/git-receive-pack"
    cell.until_metric(f'remuda_cell_http_requests_total{{method="POST",route="{route}",status="499"}} 1.0')


def test_an_aborted_push(cell: ServedCell, clone: Clone) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main")
    with begin_push(cell, 5000) as caller:
        caller.sendall(b"0094")
    wait_for_aborted_push(cell)
    clone.commit()
    clone.run("push", "--quiet", "origin", "main")
    assert len(list_pipelines(cell)) == 2


def temporary_objects(cell: ServedCell) -> list[str]:
    """Return the temporary objects of unfinished pushes."""
    return [path.name for path in (cell.settings.data / "repos").glob("*/*.git/objects/tmp_*")]


@pytest.mark.parametrize("count", [1, 300], ids=["objects", "pack"])
def test_an_aborted_push_leaves_no_objects(cell: ServedCell, clone: Clone, count: int) -> None:
    """git unpacks a small pack, and stores a large one as it is."""
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main")
    for number in range(count):
        (clone.folder / f"file{number}").write_bytes(os.urandom(1000))
    (clone.folder / "large").write_bytes(os.urandom(1_000_000))
    sha = clone.commit()
    object_ids = [
        line.split()[0] for line in clone.run("rev-list", "--objects", "origin/main..HEAD").stdout.splitlines()
    ]
    clone.run("pack-objects", "--quiet", "pack", stdin="".join(f"{name}\n" for name in object_ids))
    [pack] = clone.folder.glob("pack-*.pack")
    command = f"{'0' * 40} {sha} refs/heads/side\0 report-status"
    body = f"{len(command) + 4:04x}{command}0000".encode() + pack.read_bytes()
    with begin_push(cell, len(body)) as caller:
        caller.sendall(body[:-1000])
        wait_until(lambda: temporary_objects(cell) != [], "git has begun to write objects")
    wait_for_aborted_push(cell)
    assert temporary_objects(cell) == []
    assert "side" not in clone.run("ls-remote", "origin").stdout


@pytest.mark.parametrize("count", [1, 300], ids=["objects", "pack"])
def test_a_push_that_is_too_large(tmp_path: Path, count: int) -> None:
    with ServedCell(tmp_path / "cell", push_limit_bytes=1_000_000) as cell:
        clone = Clone(tmp_path / "clone")
        clone.run("init", "--quiet", "-b", "main")
        clone.run("remote", "add", "origin", address(cell, "root/app", cell.token))
        clone.commit(file="x")
        clone.run("push", "--quiet", "origin", "main")
        for number in range(count):
            (clone.folder / f"file{number}").write_bytes(os.urandom(1000))
        (clone.folder / "large").write_bytes(os.urandom(1_000_000))
        clone.commit()
        for options in ((), ("-c", "http.postBuffer=65536")):
            refused = clone.run(*options, "push", "origin", "main", ok=False)
            assert "remote: fatal: pack exceeds maximum allowed size" in refused.stderr
        assert temporary_objects(cell) == []
        (clone.folder / "large").write_bytes(os.urandom(100_000))
        clone.run("commit", "--quiet", "--all", "--amend", "-m", "Smaller")
        clone.run("push", "--quiet", "origin", "main")


def test_addresses_without_git_at_the_end(cell: ServedCell, clone: Clone) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    for project in ("root/app", "root/new"):
        short = address(cell, project, cell.token).removesuffix(".git")
        clone.run("push", "--quiet", short, "main")
        assert "refs/heads/main" in clone.run("ls-remote", short).stdout
        assert len(list_pipelines(cell, quote(project, safe=""))) == 1


def test_tags_of_other_things_than_commits(cell: ServedCell, clone: Clone) -> None:
    sha = clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("tag", "-a", "-m", "inner", "inner", "main")
    clone.run("tag", "-a", "-m", "outer", "outer", "inner")
    clone.run("tag", "folder", "main^{tree}")
    clone.run("tag", "-a", "-m", "of a file", "file", "main:.gitlab-ci.yml")
    clone.run("tag", "-a", "-m", "of that", "twice", "file")
    clone.run("push", "--quiet", "origin", "outer", "folder", "file", "twice")
    assert [(pipeline["ref"], pipeline["sha"]) for pipeline in list_pipelines(cell)] == [("outer", sha)]


def test_strange_names(cell: ServedCell, clone: Clone) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    names = ["a\u2028b", "ünï/code", "a'b\"c$(d)", "x;y|z"]
    clone.run("push", "--quiet", "origin", *[f"main:refs/heads/{name}" for name in names])
    assert sorted(str(pipeline["ref"]) for pipeline in list_pipelines(cell)) == sorted(names)
    quoted = quote(names[2], safe="")
    assert cell.api("GET", f"/projects/root%2Fapp/repository/branches/{quoted}").json()["name"] == names[2]


def test_another_default_branch(cell: ServedCell, clone: Clone, tmp_path: Path) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", "--quiet", "origin", "main:trunk")
    assert cell.api("GET", "/projects/root%2Fapp").json()["default_branch"] == "trunk"
    other = Clone(tmp_path / "other")
    other.run("clone", "--quiet", address(cell, "root/app", cell.token), "copy")
    assert (other.folder / "copy" / ".gitlab-ci.yml").exists()


def test_a_push_that_was_not_handled_is_found_at_the_next_start(tmp_path: Path) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        cell.new_project("app", PIPELINE)
    [repo] = (tmp_path / "cell" / "repos").glob("*/*.git")
    bare = Clone(tmp_path / "bare")
    bare.run("clone", "--quiet", str(repo), "copy")
    copy = Clone(bare.folder / "copy")
    sha = copy.commit()
    copy.run("push", "--quiet", "origin", "HEAD:main")
    with ServedCell(tmp_path / "cell") as cell:
        assert cell.until_pipelines(2)[0]["sha"] == sha


def test_a_push_creates_the_project(cell: ServedCell, clone: Clone) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    clone.run("push", address(cell, "acme/new-shop", cell.token), "HEAD:main")
    project = cell.send("GET", f"/api/v4/projects/{quote('acme/new-shop', safe='')}", PRIVATE_TOKEN=cell.token).json()
    assert (project["path_with_namespace"], project["name"]) == ("acme/new-shop", "new-shop")
    pipelines = cell.send("GET", f"/api/v4/projects/{project['id']}/pipelines", PRIVATE_TOKEN=cell.token).json()
    assert [pipeline["source"] for pipeline in pipelines] == ["push"]


def test_a_push_creates_no_project_with_a_bad_name(cell: ServedCell, clone: Clone) -> None:
    clone.commit(**{".gitlab-ci.yml": PIPELINE})
    refused = clone.run("push", address(cell, "onlyname", cell.token), "HEAD:main", ok=False)
    assert "403" in refused.stderr
    clone.run("push", address(cell, "acme/-shop", cell.token), "HEAD:main", ok=False)
    clone.run("fetch", address(cell, "acme/unknown", cell.token), ok=False)
    projects = cell.send("GET", "/api/v4/projects", PRIVATE_TOKEN=cell.token).json()
    assert [project["path_with_namespace"] for project in projects] == ["root/app"]


def test_an_unreadable_repository_does_not_end_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ServedCell(tmp_path / "cell") as cell:
        cell.new_project("app", PIPELINE)
    attempts = threading.Semaphore(0)

    async def fail(self: Projects, project: Project) -> None:
        attempts.release()
        raise RuntimeError(f"{project.path} is odd")

    monkeypatch.setattr(Projects, "sync_refs", fail)
    monkeypatch.setattr("remuda.cell.projects.projects.RETRY_SECONDS", 0.01)
    with ServedCell(tmp_path / "cell") as cell:
        for _ in range(2):
            assert attempts.acquire(timeout=30)
        assert cell.send("GET", "/-/health").status == 200


def test_a_push_while_the_folder_of_notes_is_removed(tmp_path: Path) -> None:
    programs, repo = tmp_path / "programs", tmp_path / "repo.git"
    programs.mkdir()
    repo.mkdir()
    mktemp = programs / "mktemp"
    mktemp.write_text(
        f"""#!/bin/sh
[ -e {tmp_path}/removed ] || {{ rmdir "$GIT_DIR/push-notes"; : >{tmp_path}/removed; }}
exec {shutil.which("mktemp")} "$@"
"""
    )
    mktemp.chmod(0o700)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GIT_DIR": str(repo),
        "GIT_PUSH_OPTION_COUNT": "1",
        "GIT_PUSH_OPTION_0": "ci.skip",
    }
    moved = f"{'0' * 40} {'1' * 40} refs/heads/main\n"
    subprocess.run(["sh", "-c", HOOK], env=environment, input=moved, text=True, check=True, timeout=30)
    [note] = PushFiles(repo.parent).notes(repo.name)
    assert (note.refs, note.options) == ({"refs/heads/main": "1" * 40}, ("ci.skip",))


async def test_commits_are_cached_unless_their_messages_are_long(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "work")
    clone.run("init", "--quiet", "-b", "main")
    short, long = clone.commit("Short"), clone.commit("Long " * 10_000)
    repos = GitRepos(tmp_path, tmp_path / "hooks")
    repo = "work/.git"
    assert await repos.commit(repo, short) is await repos.commit(repo, short)
    first, again = await repos.commit(repo, long), await repos.commit(repo, long)
    assert first == again
    assert first is not again, "a cache of long messages would fill the memory"


@pytest.mark.parametrize("version", ["", "version=2"])
async def test_a_fetch_follows_no_grafts_and_leaves_nothing_in_the_log(tmp_path: Path, version: str) -> None:
    clone = Clone(tmp_path / "work")
    clone.run("init", "--quiet", "-b", "main")
    clone.commit("First")
    sha = clone.commit("Second")
    (tmp_path / "work/.git/info/grafts").write_text(f"{sha}\n")
    repos = GitRepos(tmp_path, tmp_path / "hooks")
    answer: list[bytes] = []
    want, done = f"want {sha}{'' if version else ' side-band-64k'}\n", "0009done\n"
    want = f"{len(want) + 4:04x}{want}"
    body = (f"0012command=fetch\n0001{want}{done}0000" if version else f"{want}0000{done}").encode()

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    async def start(status: int, headers: list[tuple[bytes, bytes]]) -> None:
        assert status == 200

    async def send(piece: bytes) -> None:
        answer.append(piece)

    request = GitRequest(
        method="POST",
        service="git-upload-pack",
        content_type="application/x-git-upload-pack-request",
        protocol=version,
    )
    client = GitClient(body=pieces(), start=start, send=send)
    assert await repos.serve("work/.git", request, client) == ""
    pack = b"".join(answer)
    # Two commits and their tree.
    assert pack[pack.index(b"PACK") :][4:12] == struct.pack(">II", 2, 3)
    assert await repos.count("work/.git", sha) == 2


@pytest.mark.parametrize("seconds", [0, 0.5], ids=["at once", "when the pipe is full"])
async def test_fetch_of_gone_client_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """A fetch needs no cleanup, and git does not notice that nobody reads its output: it is killed without a delay."""
    monkeypatch.setattr(program, "STOP_SECONDS", 600)
    clone = Clone(tmp_path / "work")
    clone.run("init", "--quiet", "-b", "main")
    (clone.folder / "large").write_bytes(os.urandom(10_000_000))
    want = f"want {clone.commit()} side-band-64k\n"

    async def pieces() -> AsyncIterator[bytes]:
        yield f"{len(want) + 4:04x}{want}00000009done\n".encode()

    async def start(status: int, headers: list[tuple[bytes, bytes]]) -> None:
        assert status == 200

    async def send(piece: bytes) -> None:
        await asyncio.sleep(seconds)
        raise ClientGoneError

    kind = "application/x-git-upload-pack-request"
    request = GitRequest(method="POST", service="git-upload-pack", content_type=kind)
    client = GitClient(body=pieces(), start=start, send=send)
    async with asyncio.timeout(30):
        with pytest.raises(ExceptionGroup) as caught:
            await GitRepos(tmp_path, tmp_path / "hooks").serve("work/.git", request, client)
    assert isinstance(caught.value.exceptions[0], ClientGoneError)


SMALLER = 200_000


@pytest.mark.parametrize("size", [10_000_000, SMALLER], ids=["git still writes", "git has ended"])
async def test_git_whose_output_is_not_read_leaves_no_open_pipe(tmp_path: Path, size: int) -> None:
    clone = Clone(tmp_path / "work")
    clone.run("init", "--quiet", "-b", "main")
    (clone.folder / "large").write_bytes(bytes(size))
    clone.commit()
    git = GitProgram(tmp_path, os.environ)
    process = await git.start("cat-file", "blob", "main:large", repo="work/.git")
    pipe = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
    async with asyncio.timeout(30):
        # The reader pauses with a full buffer; the rest of a small file fits into the pipe, so git can end.
        while not pipe._paused or (size == SMALLER and process.returncode is None):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
        assert not pipe.is_closing()
        await end_git(process)
    assert pipe.is_closing()
