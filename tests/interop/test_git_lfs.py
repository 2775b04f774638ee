"""Checks out a repository with Git LFS files: the real git-lfs fetches them from a small LFS server."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_programs import require_built
from tests.support.git_client import git
from tests.support.servers.http_server import PlainHandler, run_http_server
from tests.support.servers.step_server import BASIC, TOKEN

PROGRAM = Path(__file__).parents[2] / "build" / "interop" / "git-lfs"
CONTENT = b"a large file\n" * 10_000
OID = hashlib.sha256(CONTENT).hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize {len(CONTENT)}\n"


@dataclass
class LfsServer:
    """State of the server: its repositories and the LFS requests that it received."""

    root: Path
    port: int = 0
    requests: list[str] = field(default_factory=list)

    def url(self, token: str = TOKEN) -> str:
        return f"http://gitlab-ci-token:{token}@127.0.0.1:{self.port}/group/project.git"


class _Handler(PlainHandler):
    state: LfsServer

    def respond(self) -> None:
        body = self.read_body()
        path = self.path.partition("?")[0]
        if self.headers["Authorization"] != BASIC:
            self.answer(401, b"", {"WWW-Authenticate": "Basic"})
        elif path.endswith("/info/lfs/objects/batch"):
            self.state.requests.append("batch")
            prefix = f"http://127.0.0.1:{self.state.port}/objects"
            objects = [
                requested | {"actions": {"download": {"href": f"{prefix}/{requested['oid']}"}}}
                for requested in json.loads(body)["objects"]
            ]
            headers = {"Content-Type": "application/vnd.git-lfs+json"}
            self.answer(200, json.dumps({"transfer": "basic", "objects": objects}).encode(), headers)
        elif path == f"/objects/{OID}":
            self.state.requests.append("object")
            self.answer(200, CONTENT)
        else:
            self.answer_with_git(self.state.root, body)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LfsServer]:
    require_built(PROGRAM)
    state = LfsServer(root=tmp_path / "repos")
    bare, source = state.root / "group/project.git", tmp_path / "source"
    bare.mkdir(parents=True)
    source.mkdir()
    git(bare, "init", "-q", "--bare", "-b", "main")
    git(source, "init", "-q", "-b", "main")
    (source / "assets").mkdir()
    (source / "assets/.gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (source / "assets/large.bin").write_text(POINTER)
    git(source, "-c", "filter.lfs.clean=cat", "-c", "filter.lfs.required=false", "add", ".")
    git(source, "commit", "-q", "-m", "with a large file")
    git(source, "push", "-q", str(bare), "main")
    handler = type("Handler", (_Handler,), {"state": state})
    with run_http_server(handler) as listening:
        state.port = listening.server_port
        yield state


def checkout(
    server: LfsServer, tmp_path: Path, *, has_lfs: bool = True, **inputs: Any
) -> "subprocess.CompletedProcess[str]":
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    defaults = {
        "repo_url": server.url(),
        "sha": git(tmp_path / "source", "rev-parse", "HEAD"),
        "ref": "main",
        "refspecs": ["+refs/heads/main:refs/remotes/origin/main"],
    }
    (tmp_path / "inputs").write_text(json.dumps(defaults | inputs))
    env = os.environ | {"REMUDA_INPUTS": str(tmp_path / "inputs"), "HOME": str(tmp_path)}
    # Without git-lfs: a folder with links to the other programs, because Debian's git-lfs may be installed.
    programs = tmp_path / "programs"
    if not programs.exists():
        programs.mkdir()
        for name in ("git", "sh"):
            (programs / name).symlink_to(str(shutil.which(name)))
    env["PATH"] = f"{PROGRAM.parent}:{env['PATH']}" if has_lfs else str(programs)
    words = [sys.executable, "-m", "remuda.stdsteps", "checkout"]
    return subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, check=False)


def test_lfs_files_are_fetched_once_and_git_status_is_clean(server: LfsServer, tmp_path: Path) -> None:
    for attempt in range(2):
        done = checkout(server, tmp_path)
        assert done.returncode == 0, done.stdout
        assert (tmp_path / "work/assets/large.bin").read_bytes() == CONTENT, attempt
    # The second checkout uses the file that the first one fetched.
    assert server.requests.count("object") == 1
    env = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=tmp_path / "work", env=env, capture_output=True, check=True
    )
    assert changed.stdout == b""
    config = (tmp_path / "work/.git/config").read_text()
    assert TOKEN not in config
    assert BASIC not in config


def test_pointer_files_stay_if_lfs_is_off_or_not_installed(server: LfsServer, tmp_path: Path) -> None:
    done = checkout(server, tmp_path, lfs=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "work/assets/large.bin").read_text() == POINTER
    done = checkout(server, tmp_path, has_lfs=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "work/assets/large.bin").read_text() == POINTER
    assert server.requests == []
