"""The operator's hooks before and after a job end at their timeout, even if they started a daemon."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.support.manager_values import a_place

from remuda.manager.errors import EnvironmentLostError
from remuda.plugins import job_hooks

PLACE = a_place()


async def test_a_daemon_of_a_hook_that_keeps_its_output_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_hooks, "HOOK_SECONDS", 1.0)
    file = tmp_path / "pid"
    command = f"echo begun; setsid sh -c 'echo $$ > {file}; exec sleep 60' & exec sleep 60"
    try:
        async with asyncio.timeout(20):
            with pytest.raises(EnvironmentLostError, match="took more than 1 s"):
                await job_hooks.run_hook(
                    "before_job", command, PLACE, work_dir=str(tmp_path), error_type=EnvironmentLostError
                )
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)
