"""Output of `remuda scale explain` for ending fleets, foreign machines, and plugins that are still starting."""

from pathlib import Path

import pytest

from remuda.cli import scale
from remuda.manager.process.scale_commands import FleetReport
from remuda.testing.scalers import Stable


async def test_ending_fleet_and_foreign_machine_have_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stable = Stable(tmp_path)
    stable.cloud.make(1, "s_test/another")
    await stable.start()
    await stable.run(5)
    status = stable.scaler.status()
    capsys.readouterr()
    scale._show(FleetReport(runner="abc", name="builder", status=status, is_ending=True))
    output = capsys.readouterr().out
    assert output.startswith("builder (ending): 1 foreign; 0 jobs there")
    assert "its machines are removed when their jobs have ended" in output
    row = next(line for line in output.splitlines() if line.startswith("i-1"))
    assert "tagged with the owner s_test/another" in row
    assert "0/1" not in row
    await stable.close()


async def test_plugin_hanging_at_start_is_shown_as_starting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stable = Stable(tmp_path, "slow")
    stable.cloud.hung.add("init")
    await stable.start()
    await stable.run(12, step=1.0)
    capsys.readouterr()
    scale._show(FleetReport(runner="abc", name="", status=stable.scaler.status()))
    output = capsys.readouterr().out
    assert output.startswith("abc: no machines")
    assert "Group slow (is starting, 12s)" in output
    await stable.kill()
