"""What `remuda scale explain` shows of fleets that end, of machines of others, and of plugins that take their time."""

from pathlib import Path

import pytest

from remuda.cli import scale
from remuda.manager.process.scale_commands import FleetReport
from remuda.testing.scalers import Stable


async def test_a_fleet_that_ends_and_machines_of_others_are_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stable = Stable(tmp_path)
    stable.cloud.make(1, "s_test/another")
    await stable.start()
    await stable.run(5)
    status = stable.scaler.status()
    capsys.readouterr()
    scale._show(FleetReport(runner="abc", name="builder", status=status, is_ending=True))
    shown = capsys.readouterr().out
    assert shown.startswith("builder (ending): 1 foreign; 0 jobs there")
    assert "its machines go when their jobs are over" in shown
    row = next(line for line in shown.splitlines() if line.startswith("i-1"))
    assert "is s_test/another's by its tag" in row
    assert "0/1" not in row
    await stable.close()


async def test_a_plugin_that_hangs_at_its_start_is_starting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stable = Stable(tmp_path, "slow")
    stable.cloud.hung.add("init")
    await stable.start()
    await stable.run(12, step=1.0)
    capsys.readouterr()
    scale._show(FleetReport(runner="abc", name="", status=stable.scaler.status()))
    shown = capsys.readouterr().out
    assert shown.startswith("abc: no machines")
    assert "Group slow (is starting, 12s)" in shown
    await stable.kill()
