"""Caches in an object storage over real HTTP. The storage accepts only signed URLs, which the manager creates."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.manager_values import a_payload, a_setting
from tests.support.servers.object_server import ObjectServer
from tests.support.step_jobs import RunStep

from remuda.manager.compile.stored_files import restore_caches, save_caches
from remuda.manager.compile.variables import Variables
from remuda.manager.config.cache import CacheConfig
from remuda.manager.config.values import RunnerConfig
from remuda.testing.agent_process import Seen

NOW = 1_700_000_000.0


def cache_inputs(
    storage: ObjectServer, key: str = "main", *fallback: str, limit: int = 0, secret: str = "SK"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of the steps cache_restore and cache_save, with URLs that the manager signs."""
    s3 = msgspec.structs.replace(storage.config, secret_key=secret)
    cache = CacheConfig(type="s3", s3=s3, largest_bytes=limit)
    runner = RunnerConfig(url="http://cell.test", token="glrt-abcdefghijkl", cache=cache)
    setting = a_setting(runner, now=NOW)
    entry = {"key": key, "fallback_keys": list(fallback), "paths": ["deps"]}
    payload = a_payload(job_info={"project_id": 7}, cache=[entry])
    [restore] = restore_caches(payload, setting, Variables([]))
    [save] = save_caches(payload, setting, Variables([]))
    return restore["inputs"], save["inputs"]


@pytest.fixture
def deps(tmp_path: Path) -> Path:
    folder = tmp_path / "work/deps"
    folder.mkdir(parents=True)
    (folder / "tool").write_bytes(os.urandom(700_000))
    return folder


def read_outputs(seen: Seen) -> dict[str, Any]:
    outputs: dict[str, Any] = seen.results[-1]["outputs"]
    assert outputs.pop("seconds") >= 0
    return outputs


async def test_miss_hit_and_fallback_seen(run_step: RunStep, storage: ObjectServer, deps: Path, tmp_path: Path) -> None:
    restore, save = cache_inputs(storage, "main")
    seen = await run_step("cache_restore", restore, "1")
    assert seen.check().status == "success"
    assert read_outputs(seen) == {"hit": False, "key": "", "fallback": False, "files": 0, "bytes": 0}
    seen = await run_step("cache_save", save, "2")
    size = len(storage.objects["main"])
    assert read_outputs(seen) == {"saved": True, "key": "main", "files": 2, "bytes": size}
    seen = await run_step("cache_restore", restore, "3", work_dir=str(tmp_path / "three"))
    assert read_outputs(seen) == {"hit": True, "key": "main", "fallback": False, "files": 2, "bytes": size}
    assert (tmp_path / "three/deps/tool").read_bytes() == (deps / "tool").read_bytes()
    restore, _ = cache_inputs(storage, "topic", "none", "main")
    seen = await run_step("cache_restore", restore, "4", work_dir=str(tmp_path / "four"))
    assert read_outputs(seen) == {"hit": True, "key": "main", "fallback": True, "files": 2, "bytes": size}
    # Signed URLs are secrets: neither the log nor the results contain them.
    log_and_results = b"".join(seen.lines) + json.dumps(seen.results).encode()
    assert b"X-Amz-Signature" not in log_and_results
    assert b"X-Amz-Credential" not in log_and_results


async def test_an_unchanged_cache_is_not_uploaded(run_step: RunStep, storage: ObjectServer, deps: Path) -> None:
    _, save = cache_inputs(storage)
    await run_step("cache_save", save, "1")
    seen = await run_step("cache_save", save, "2")
    assert read_outputs(seen)["saved"] is False
    assert any(b"The files have not changed" in line for line in seen.lines)
    (deps / "tool").write_text("new")
    assert read_outputs(await run_step("cache_save", save, "3"))["saved"] is True
    assert storage.requests == ["GET main", "PUT main", "GET main", "GET main", "PUT main"]


async def test_storage_calls_are_retried(run_step: RunStep, storage: ObjectServer, deps: Path, tmp_path: Path) -> None:
    restore, save = cache_inputs(storage)
    storage.answers = [404, 503, 500]
    assert read_outputs(await run_step("cache_save", save, "1"))["saved"] is True
    storage.answers = [-1, 503]
    seen = await run_step("cache_restore", restore, "2", work_dir=str(tmp_path / "two"))
    assert read_outputs(seen)["hit"] is True
    assert (tmp_path / "two/deps/tool").read_bytes() == (deps / "tool").read_bytes()


async def test_a_refusal_is_a_warning(run_step: RunStep, storage: ObjectServer, deps: Path) -> None:
    restore, save = cache_inputs(storage, secret="another")
    seen = await run_step("cache_save", save, "1")
    assert seen.check().status == "success"
    assert read_outputs(seen)["saved"] is False
    assert any(b"the server answered 403 Forbidden: AccessDenied" in line for line in seen.lines), seen.lines
    seen = await run_step("cache_restore", restore, "2")
    assert seen.check().status == "success"
    assert read_outputs(seen)["hit"] is False


async def test_damaged_and_too_large_objects_are_refused(run_step: RunStep, storage: ObjectServer, deps: Path) -> None:
    restore, save = cache_inputs(storage, limit=1000)
    seen = await run_step("cache_save", save, "1")
    assert any(b"this runner uploads at most 1000" in line for line in seen.lines)
    assert "PUT main" not in storage.requests
    storage.objects["main"] = b"PK" + os.urandom(5000)
    seen = await run_step("cache_restore", restore, "2")
    assert read_outputs(seen)["hit"] is False
    assert any(b"It is not used" in line for line in seen.lines)
    assert "main" in storage.objects
