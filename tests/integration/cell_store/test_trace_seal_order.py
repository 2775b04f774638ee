"""Sealing a trace: its bytes are synced to the disk before the rename into the archive."""

import os
from pathlib import Path
from typing import Any

import pytest

from remuda.cell.traces.files import FileTraces
from remuda.model.job import JobId


async def test_bytes_are_synced_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def recording(name: str) -> Any:
        call = getattr(os, name)

        def record_and_call(*arguments: Any) -> Any:
            subject = os.readlink(f"/proc/self/fd/{arguments[0]}") if name == "fsync" else str(arguments[0])
            calls.append(f"{name} {Path(subject).name}")
            return call(*arguments)

        return record_and_call

    monkeypatch.setattr("remuda.lib.files._Sync.is_enabled", True)
    for name in ("fsync", "rename"):
        monkeypatch.setattr(os, name, recording(name))
    traces = FileTraces(tmp_path)
    try:
        await traces.append(JobId(7), 0, b"a line\n")
        assert (await traces.seal(JobId(7)))[0] == 7
        assert calls == ["fsync 7.log", "rename 7.log", "fsync archive"]
        assert await traces.size(JobId(7)) == 7
    finally:
        traces.close()
