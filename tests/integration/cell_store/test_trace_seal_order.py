"""A name in the archive says that a trace is whole: its bytes are on the disk before it gets that name."""

import os
from pathlib import Path
from typing import Any

import pytest

from remuda.cell.traces.files import FileTraces
from remuda.model.job import JobId


async def test_bytes_are_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noting(name: str) -> Any:
        call = getattr(os, name)

        def noted(*arguments: Any) -> Any:
            subject = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else str(arguments[0])
            done.append(f"{name} {Path(subject).name}")
            return call(*arguments)

        return noted

    monkeypatch.setattr("remuda.lib.files._Disk.is_waited_for", True)
    for name in ("fsync", "rename"):
        monkeypatch.setattr(os, name, noting(name))
    traces = FileTraces(tmp_path)
    try:
        await traces.append(JobId(7), 0, b"a line\n")
        assert (await traces.seal(JobId(7)))[0] == 7
        assert done == ["fsync 7.log", "rename 7.log", "fsync archive"]
        assert await traces.size(JobId(7)) == 7
    finally:
        traces.close()
