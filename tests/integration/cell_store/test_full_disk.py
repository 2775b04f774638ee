"""A full disk, simulated by a file size limit in a child process: writes raise StoreError and stored data is kept."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.cell.errors import StoreError
from remuda.cell.git.repositories import GitRepos

LIMITED = """
import asyncio, resource, signal, sys
import os
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
from remuda.cell.blobs.folder import FolderBlobs
from remuda.cell.traces.files import FileTraces
from remuda.cell.store.sqlite.store import SqliteStore
from remuda.cell.errors import StoreError
from remuda.model.job import JobId
folder = Path(sys.argv[1])

async def catch_store_error(call):
    try:
        return await call
    except StoreError as error:
        assert "check" in str(error), error
        return "StoreError"
"""

TRACES = """
async def main():
    traces = FileTraces(folder)
    assert (await traces.append(JobId(1), 0, b"x" * 60_000)).taken
    assert await catch_store_error(traces.append(JobId(1), 60_000, b"y" * 60_000)) == "StoreError"
    assert await traces.size(JobId(1)) == 60_000
    assert (await traces.append(JobId(1), 60_000, b"z" * 10)).size == 60_010
    assert (await traces.seal(JobId(1)))[0] == 60_010
"""

BLOBS = """
async def pieces(count):
    for _ in range(count):
        yield b"x" * 60_000

async def main():
    blobs = FolderBlobs(folder)
    assert await catch_store_error(blobs.put("a", pieces(30), limit_bytes=10**9)) == "StoreError"
    assert await blobs.size("a") is None
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    assert (await blobs.put("a", pieces(1), limit_bytes=10**9))[0] == 60_000
"""

STORE = """
async def main():
    store = SqliteStore.open(folder / "cell.sqlite", 1)
    stored = 0
    while await catch_store_error(store.settings.put_setting(f"s{stored}", "x" * 5000)) != "StoreError":
        stored += 1
    assert stored > 3
    for number in range(stored):
        assert await store.settings.load_setting(f"s{number}") == "x" * 5000
    assert await store.settings.load_setting(f"s{stored}") is None
    await store.close()
"""


def run(script: str, limit: int, folder: Path) -> None:
    program = LIMITED.replace("LIMIT)", f"{limit})").replace("(LIMIT", f"({limit}") + script + "\nasyncio.run(main())\n"
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_trace_keeps_its_former_size(tmp_path: Path) -> None:
    run(TRACES, 100_000, tmp_path)


def test_a_blob_leaves_nothing_behind(tmp_path: Path) -> None:
    run(BLOBS, 1_000_000, tmp_path)


def test_the_store_keeps_what_it_has(tmp_path: Path) -> None:
    run(STORE, 600_000, tmp_path)


async def test_full_disk_reported_by_git_raises_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(
        "#!/bin/sh\ncat > /dev/null\necho \"fatal: sha1 file '<stdout>' write error. Out of diskspace\" >&2\nexit 128\n"
    )
    git.chmod(0o700)
    monkeypatch.setenv("PATH", f"{git.parent}:{os.environ['PATH']}")
    repos = GitRepos(tmp_path / "repos", tmp_path / "hooks")
    repos.prepare()
    with pytest.raises(StoreError):
        await repos.put_ref("any.git", "refs/heads/main", "0" * 40)
