"""Caches of real jobs in a folder: the next job restores what a job has saved."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.step_jobs import Build, RunStep

from remuda.stdsteps.caches.folder_store import file_name
from remuda.testing.agent_process import AgentProcess, Seen, run_job, steps_text


def read_outputs(seen: Seen) -> dict[str, Any]:
    outputs: dict[str, Any] = seen.results[-1]["outputs"]
    assert outputs.pop("seconds", 0) >= 0
    return outputs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "caches/group/project"


async def save(run_step: RunStep, folder: Path, job_id: str, key: str = "main", **values: Any) -> Seen:
    inputs = {"folder": str(folder), "key": key, "paths": ["deps/"]} | values
    return await run_step("cache_save", inputs, job_id)


async def test_one_job_saves_and_the_next_restores(run_step: RunStep, folder: Path, tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    (work / "deps/bin").mkdir(parents=True)
    (work / "deps/bin/tool").write_text("#!/bin/sh\n")
    (work / "deps/bin/tool").chmod(0o755)
    (work / "deps/link").symlink_to("bin/tool")
    os.utime(work / "deps/bin/tool", (1_600_000_001, 1_600_000_001))
    seen = await save(run_step, folder, "1")
    assert seen.check().status == "success", seen.lines
    size = (folder / file_name("main")).stat().st_size
    assert read_outputs(seen) == {"saved": True, "key": "main", "files": 4, "bytes": size}
    seen = await run_step("cache_restore", {"folder": str(folder), "key": "main"}, "2", work_dir=str(other))
    assert read_outputs(seen) == {"hit": True, "key": "main", "fallback": False, "files": 4, "bytes": size}
    assert any(line.startswith(b"Restored cache main: 4 files") for line in seen.lines)
    tool = (other / "deps/bin/tool").stat()
    assert (tool.st_mode & 0o777, tool.st_mtime) == (0o755, 1_600_000_001)
    assert os.readlink(other / "deps/link") == "bin/tool"
    inputs = {"folder": str(folder), "key": "main", "paths": ["deps"]}
    seen = await run_step("cache_save", inputs, "3", work_dir=str(other))
    assert read_outputs(seen)["saved"] is False
    assert any(b"The files have not changed" in line for line in seen.lines)


@pytest.mark.parametrize("name", ["group", "group/project"])
async def test_no_link_in_the_cache_folder_is_used(run_step: RunStep, folder: Path, tmp_path: Path, name: str) -> None:
    caches, elsewhere = tmp_path / "caches", tmp_path / "elsewhere"
    (tmp_path / "work/deps").mkdir(parents=True)
    (tmp_path / "work/deps/a").write_text("one")
    (elsewhere / "project").mkdir(parents=True)
    (caches / name).parent.mkdir(parents=True)
    (caches / name).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    inputs = {"folder": str(folder), "root": str(caches), "key": "main"}
    seen = await run_step("cache_restore", inputs, "1")
    assert (seen.check().status, read_outputs(seen)["hit"]) == ("success", False), seen.lines
    seen = await save(run_step, folder, "2", root=str(caches))
    assert (seen.check().status, read_outputs(seen)["saved"]) == ("success", True), seen.lines
    assert sorted(elsewhere.rglob("*")) == before
    assert not (caches / name).is_symlink()
    seen = await run_step("cache_restore", inputs, "3", work_dir=str(tmp_path / "other"))
    assert read_outputs(seen)["hit"] is True, seen.lines


async def test_the_cache_folder_itself_may_be_behind_a_link(run_step: RunStep, tmp_path: Path) -> None:
    """The operator may have put the cache folder on another disk."""
    (tmp_path / "work/deps").mkdir(parents=True)
    (tmp_path / "disk").mkdir()
    (tmp_path / "caches").symlink_to("disk")
    seen = await save(run_step, tmp_path / "caches/group/project", "1", root=str(tmp_path / "caches"))
    assert read_outputs(seen)["saved"] is True, seen.lines
    assert (tmp_path / "disk/group/project" / file_name("main")).is_file()
    seen = await save(run_step, tmp_path / "elsewhere", "2", root=str(tmp_path / "caches"))
    assert (read_outputs(seen)["saved"], (tmp_path / "elsewhere").exists()) == (False, False)


@pytest.mark.parametrize("kind", ["link", "pipe"])
async def test_a_cache_must_be_a_plain_file(run_step: RunStep, folder: Path, tmp_path: Path, kind: str) -> None:
    (tmp_path / "work/deps").mkdir(parents=True)
    await save(run_step, folder, "1")
    archive, aside = folder / file_name("main"), tmp_path / "aside"
    archive.rename(aside)
    os.utime(aside, (1_600_000_001, 1_600_000_001))
    archive.symlink_to(aside) if kind == "link" else os.mkfifo(archive)
    seen = await run_step("cache_restore", {"folder": str(folder), "key": "main"}, "2")
    assert (seen.check().status, read_outputs(seen)["hit"]) == ("success", False), seen.lines
    assert read_outputs(await save(run_step, folder, "3"))["saved"] is True
    assert (archive.is_symlink(), archive.is_file()) == (False, True)
    assert aside.stat().st_mtime == 1_600_000_001


async def test_fallback_keys_are_tried_in_order(run_step: RunStep, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "work/deps").mkdir(parents=True)
    for number, key in enumerate(("old", "older")):
        (tmp_path / "work/deps/which").write_text(key * 3)
        await save(run_step, folder, f"s{number}", key)
    other = tmp_path / "other"
    inputs = {"folder": str(folder), "key": "../new", "fallback_keys": ["none", "old", "older"]}
    seen = await run_step("cache_restore", inputs, "2", work_dir=str(other))
    assert (read_outputs(seen)["hit"], read_outputs(seen)["key"], read_outputs(seen)["fallback"]) == (True, "old", True)
    assert (other / "deps/which").read_text() == "oldoldold"
    assert [line.partition(b":")[0] for line in seen.lines] == [
        b"Checking cache for ../new...",
        b"Checking cache for none...",
        b"Checking cache for old...",
        b"Restored cache old in place of ../new",
    ]


async def test_a_miss_and_a_damaged_cache_are_no_failure(run_step: RunStep, folder: Path, tmp_path: Path) -> None:
    seen = await run_step("cache_restore", {"folder": str(folder), "key": "main"})
    assert seen.check().status == "success"
    assert read_outputs(seen) == {"hit": False, "key": "", "fallback": False, "files": 0, "bytes": 0}
    assert seen.lines[-1] == b"No cache for main; the job continues without a cache"
    folder.mkdir(parents=True)
    (folder / file_name("main")).write_bytes(b"PK" + os.urandom(1000))
    seen = await run_step("cache_restore", {"folder": str(folder), "key": "main"}, "2")
    assert seen.check().status == "success"
    assert read_outputs(seen)["hit"] is False
    assert any(b"WARNING: the archive is damaged" in line for line in seen.lines)
    assert not (folder / file_name("main")).exists()


async def test_a_save_that_cannot_be_written_is_a_warning(run_step: RunStep, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "work/deps").mkdir(parents=True)
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the folder should be")
    seen = await save(run_step, folder, "1")
    assert seen.check().status == "success"
    assert read_outputs(seen)["saved"] is False
    assert any(b"WARNING: the cache is not saved: " in line for line in seen.lines)


def test_a_full_disk_is_a_warning_and_the_old_cache_stays(folder: Path, tmp_path: Path) -> None:
    """A limit on the size of files has the effect of a full disk."""
    (tmp_path / "deps").mkdir()
    (tmp_path / "inputs").write_text(json.dumps({"folder": str(folder), "key": "main", "paths": ["deps"]}))

    def save_limited() -> str:
        process = subprocess.run(
            ["bash", "-c", 'ulimit -f 100; exec "$0" -m remuda.stdsteps cache_save', sys.executable],
            cwd=tmp_path,
            env=os.environ | {"REMUDA_INPUTS": str(tmp_path / "inputs")},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return process.stdout

    (tmp_path / "deps/data").write_text("small")
    assert "Saved 2 files" in save_limited()
    before = (folder / file_name("main")).read_bytes()
    (tmp_path / "deps/data").write_bytes(os.urandom(1_000_000))
    assert "WARNING: the cache is not saved: [Errno 27]" in save_limited()
    assert [path.read_bytes() for path in folder.iterdir()] == [before]


async def test_parallel_savers_leave_one_cache(agent: AgentProcess, a_job: Build, folder: Path, tmp_path: Path) -> None:
    inputs = {"folder": str(folder), "key": "main", "paths": ["deps"]}
    steps = steps_text({"name": "it", "step": "builtin://cache_save", "inputs": inputs})
    jobs = []
    for number in range(6):
        work = tmp_path / f"work{number}"
        (work / "deps").mkdir(parents=True)
        for name in range(20):
            (work / f"deps/{name}").write_bytes(bytes([number]) * 20_000)
        jobs.append(a_job(str(number), work_dir=str(work), steps=steps))
    async with agent.client() as client:
        for job in jobs:
            await client.start(job)
    for job in jobs:
        assert (await run_job(agent, job)).check().status == "success"
    assert [path.name for path in folder.iterdir()] == [file_name("main")]
    restore = {"name": "it", "step": "builtin://cache_restore", "inputs": {"folder": str(folder), "key": "main"}}
    await run_job(agent, a_job("last", work_dir=str(tmp_path / "last"), steps=steps_text(restore)))
    assert len({path.read_bytes() for path in (tmp_path / "last/deps").iterdir()}) == 1


async def test_outputs_are_masked_like_the_log(run_step: RunStep, folder: Path) -> None:
    inputs = {"folder": str(folder), "key": "with-secret-word"}
    seen = await run_step("cache_restore", inputs, masks=["secret-word"])
    assert seen.lines[0] == b"Checking cache for with-[MASKED]..."
    seen = await run_step("cache_save", inputs | {"paths": ["none"]}, "2", masks=["secret-word"])
    assert read_outputs(seen)["key"] == "with-[MASKED]"
