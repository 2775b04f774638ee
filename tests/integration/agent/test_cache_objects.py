"""Caches in an object storage, over real HTTP: the storage knows only signed addresses, as a manager makes them."""

import base64
import hashlib
import json
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.manager.cache_config import CacheConfig, S3Config
from remuda.manager.config import RunnerConfig
from remuda.manager.entries import Setting
from remuda.manager.stored_files import restore_caches, save_caches
from remuda.manager.variables import Variables
from remuda.testing.agent_process import Seen
from remuda.wire.runner_api import JobPayload

RunStep = Callable[..., Awaitable[Seen]]
NOW = 1_700_000_000.0


@dataclass
class Storage:
    """What a test's storage holds, and how it misbehaves."""

    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    answers: list[int] = field(default_factory=list)
    """Statuses of the next requests; then the right ones. -1: the connection breaks in the middle."""
    requests: list[str] = field(default_factory=list)
    allowed: set[tuple[str, str]] = field(default_factory=set)
    """Methods and addresses that were signed; all others are refused."""

    def inputs(self, key: str = "main", *fallback: str, limit: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
        """Of the steps that restore and save, with the addresses that the manager signs."""
        s3 = S3Config(
            server_address=f"127.0.0.1:{self.port}", access_key="AK", secret_key="SK", bucket="b", insecure=True
        )
        cache = CacheConfig(type="s3", s3=s3, largest_bytes=limit)
        runner = RunnerConfig(url="http://cell.test", token="glrt-abcdefghijkl", cache=cache)
        setting = Setting(runner=runner, system_id="s", slot=0, work_dir="/w", builds_dir="/b", cache_dir="/c", now=NOW)
        entry = {"key": key, "fallback_keys": list(fallback), "paths": ["deps"]}
        payload = msgspec.convert({"id": 5, "token": "t", "job_info": {"project_id": 7}, "cache": [entry]}, JobPayload)
        [restore] = restore_caches(payload, setting, Variables([]))
        [save] = save_caches(payload, setting, Variables([]))
        start = f"http://127.0.0.1:{self.port}"
        reads = [*restore["inputs"]["downloads"], save["inputs"]["present"]]
        self.allowed |= {("GET", url.removeprefix(start)) for url in reads}
        self.allowed |= {("PUT", save["inputs"]["upload"].removeprefix(start))}
        return restore["inputs"], save["inputs"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Storage

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._note()
        name = self.path.partition("?")[0].rpartition("/")[2]
        if self._misbehaves():
            return
        data = self.state.objects.get(name)
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif (wanted := self.headers.get("Range", "")).startswith("bytes=-"):
            self._answer(206, data[-int(wanted[7:]) :])
        else:
            self._answer(200, data)

    def do_PUT(self) -> None:
        self._note()
        assert "Transfer-Encoding" not in self.headers
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self._misbehaves():
            return
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        if self.headers["Content-MD5"] != digest:
            self._answer(400, b"<Error><Code>BadDigest</Code></Error>")
            return
        self.state.objects[self.path.partition("?")[0].rpartition("/")[2]] = data
        self._answer(200, b"")

    def _note(self) -> None:
        self.state.requests.append(f"{self.command} {self.path.partition('?')[0].rpartition('/')[2]}")

    def _misbehaves(self) -> bool:
        status = self.state.answers.pop(0) if self.state.answers else 0
        if (self.command, self.path) not in self.state.allowed:
            status = 403
        if status == -1:
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"PK")
            self.close_connection = True
        elif status:
            self._answer(status, b"<Error><Code>AccessDenied</Code></Error>" if status == 403 else b"")
        return bool(status)

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def storage() -> Iterator[Storage]:
    state = Storage()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture
def deps(tmp_path: Path) -> Path:
    folder = tmp_path / "work/deps"
    folder.mkdir(parents=True)
    (folder / "tool").write_bytes(os.urandom(700_000))
    return folder


def outputs(seen: Seen) -> dict[str, Any]:
    found: dict[str, Any] = seen.results[-1]["outputs"]
    assert found.pop("seconds") >= 0
    return found


async def test_a_miss_a_hit_and_a_fallback_are_visible_in_the_result(
    run_step: RunStep, storage: Storage, deps: Path, tmp_path: Path
) -> None:
    restore, save = storage.inputs("main")
    seen = await run_step("cache_restore", restore, "1")
    assert seen.check().status == "success"
    assert outputs(seen) == {"hit": False, "key": "", "fallback": False, "files": 0, "bytes": 0}
    seen = await run_step("cache_save", save, "2")
    size = len(storage.objects["main"])
    assert outputs(seen) == {"saved": True, "key": "main", "files": 2, "bytes": size}
    seen = await run_step("cache_restore", restore, "3", work_dir=str(tmp_path / "three"))
    assert outputs(seen) == {"hit": True, "key": "main", "fallback": False, "files": 2, "bytes": size}
    assert (tmp_path / "three/deps/tool").read_bytes() == (deps / "tool").read_bytes()
    restore, _ = storage.inputs("topic", "none", "main")
    seen = await run_step("cache_restore", restore, "4", work_dir=str(tmp_path / "four"))
    assert outputs(seen) == {"hit": True, "key": "main", "fallback": True, "files": 2, "bytes": size}
    # What is signed is a secret: neither log nor results show it.
    shown = b"".join(seen.lines) + json.dumps(seen.results).encode()
    assert b"X-Amz-Signature" not in shown
    assert b"X-Amz-Credential" not in shown


async def test_nothing_is_sent_where_nothing_has_changed(run_step: RunStep, storage: Storage, deps: Path) -> None:
    _, save = storage.inputs()
    await run_step("cache_save", save, "1")
    seen = await run_step("cache_save", save, "2")
    assert outputs(seen)["saved"] is False
    assert any(b"Nothing has changed" in line for line in seen.lines)
    (deps / "tool").write_text("new")
    assert outputs(await run_step("cache_save", save, "3"))["saved"] is True
    assert storage.requests == ["GET main", "PUT main", "GET main", "GET main", "PUT main"]


async def test_a_storage_that_is_away_or_breaks_off_is_asked_again(
    run_step: RunStep, storage: Storage, deps: Path, tmp_path: Path
) -> None:
    restore, save = storage.inputs()
    storage.answers = [404, 503, 500]
    assert outputs(await run_step("cache_save", save, "1"))["saved"] is True
    storage.answers = [-1, 503]
    seen = await run_step("cache_restore", restore, "2", work_dir=str(tmp_path / "two"))
    assert outputs(seen)["hit"] is True
    assert (tmp_path / "two/deps/tool").read_bytes() == (deps / "tool").read_bytes()


async def test_a_refusal_is_a_warning(run_step: RunStep, storage: Storage, deps: Path) -> None:
    restore, save = storage.inputs()
    storage.allowed.clear()
    seen = await run_step("cache_save", save, "1")
    assert seen.check().status == "success"
    assert outputs(seen)["saved"] is False
    assert any(b"the server answered 403 Forbidden: AccessDenied" in line for line in seen.lines), seen.lines
    seen = await run_step("cache_restore", restore, "2")
    assert seen.check().status == "success"
    assert outputs(seen)["hit"] is False


async def test_a_damaged_object_is_not_used_and_one_too_large_not_sent(
    run_step: RunStep, storage: Storage, deps: Path
) -> None:
    restore, save = storage.inputs(limit=1000)
    seen = await run_step("cache_save", save, "1")
    assert any(b"this runner uploads at most 1000" in line for line in seen.lines)
    assert "PUT main" not in storage.requests
    storage.objects["main"] = b"PK" + os.urandom(5000)
    seen = await run_step("cache_restore", restore, "2")
    assert outputs(seen)["hit"] is False
    assert any(b"It is not used" in line for line in seen.lines)
    assert "main" in storage.objects
