"""Saves and restores caches in a bucket of a real S3 server, through URLs that a manager signs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.built_programs import require_built
from tests.support.manager_values import a_payload, a_runner_config, a_setting
from tests.support.servers.s3_server import PROGRAM, S3Server

from remuda.lib.clock import SystemClock
from remuda.manager.compile.stored_files import restore_caches, save_caches
from remuda.manager.compile.variables import Variables
from remuda.manager.config.cache import CacheConfig, S3Config

MEBIBYTE = 1024 * 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    require_built(PROGRAM)
    with S3Server(tmp_path / "buckets") as served:
        served.new_bucket("caches")
        yield served


def cache_inputs(server: S3Server, key: str, *fallback: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of the steps cache_restore and cache_save, as the manager compiles them."""
    credentials = server.environment
    s3 = S3Config(
        server_address=f"127.0.0.1:{server.port}",
        access_key=credentials["AWS_ACCESS_KEY_ID"],
        secret_key=changes.get("secret", credentials["AWS_SECRET_ACCESS_KEY"]),
        bucket="caches",
        insecure=True,
    )
    cache = CacheConfig(type="s3", path="ci", s3=s3)
    setting = a_setting(a_runner_config(cache=cache), now=SystemClock().now() - changes.get("age", 0))
    entry = {"key": key, "fallback_keys": list(fallback), "paths": ["deps"]}
    job = a_payload(job_info={"project_id": 7}, runner_info={"timeout": 60}, cache=[entry])
    [restore] = restore_caches(job, setting, Variables([]))
    [save] = save_caches(job, setting, Variables([]))
    return restore["inputs"], save["inputs"]


def run_step(step: str, inputs: dict[str, Any], work: Path) -> tuple[dict[str, Any], str]:
    """Run a standard step as its own process. Returns its outputs and what it printed."""
    work.mkdir(exist_ok=True)
    outputs = work.with_name("outputs")
    outputs.unlink(missing_ok=True)
    work.with_name("inputs").write_text(json.dumps(inputs))
    env = os.environ | {"REMUDA_INPUTS": str(work.with_name("inputs")), "REMUDA_OUTPUTS": str(outputs)}
    words = [sys.executable, "-m", "remuda.stdsteps", step]
    done = subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, check=True)
    lines = map(json.loads, outputs.read_text().splitlines())
    return {line["name"]: line["value"] for line in lines}, done.stdout


def test_save_restore_fallback_and_unchanged_content(server: S3Server, tmp_path: Path) -> None:
    work = tmp_path / "one"
    (work / "deps").mkdir(parents=True)
    (work / "deps/blob").write_bytes(os.urandom(40 * MEBIBYTE))
    restore, save = cache_inputs(server, "feature/one two")
    assert run_step("cache_restore", restore, tmp_path / "none")[0]["hit"] is False
    outputs, text = run_step("cache_save", save, work)
    assert outputs["saved"] is True, text
    assert outputs["bytes"] > 40 * MEBIBYTE
    assert run_step("cache_save", save, work)[0]["saved"] is False
    assert run_step("cache_restore", restore, tmp_path / "two")[0]["hit"] is True
    assert (tmp_path / "two/deps/blob").read_bytes() == (work / "deps/blob").read_bytes()
    restore, _ = cache_inputs(server, "new", "feature/one two")
    outputs, _ = run_step("cache_restore", restore, tmp_path / "three")
    assert (outputs["hit"], outputs["fallback"], outputs["key"]) == (True, True, "feature/one two")


def test_an_expired_or_wrongly_signed_url_is_refused(server: S3Server, tmp_path: Path) -> None:
    work = tmp_path / "one"
    (work / "deps").mkdir(parents=True)
    (work / "deps/file").write_text("x")
    for changes in ({"age": 8000}, {"secret": "wrong"}):
        _, save = cache_inputs(server, "k", **changes)
        outputs, text = run_step("cache_save", save, work)
        assert outputs["saved"] is False
        assert "the cache is not saved: uploading the cache failed: the server answered 403" in text
    # A URL that is signed for a download is not valid for an upload.
    restore, save = cache_inputs(server, "k")
    _, text = run_step("cache_save", save | {"upload": restore["downloads"][0], "present": ""}, work)
    assert "the server answered 403" in text
