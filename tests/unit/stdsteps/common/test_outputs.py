"""Writing a step's outputs in a folder that the job controls."""

import os
from pathlib import Path

import pytest

from remuda.stdsteps.common.errors import StepError
from remuda.stdsteps.common.inputs import read_inputs
from remuda.stdsteps.common.outputs import write_outputs


def test_outputs_are_appended_as_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_OUTPUTS", str(tmp_path / "outputs"))
    write_outputs(a=1)
    write_outputs(b=["\u00e4"], c=None)
    assert (tmp_path / "outputs").read_text() == (
        '{"name": "a", "value": 1}\n{"name": "b", "value": ["\\u00e4"]}\n{"name": "c", "value": null}\n'
    )
    monkeypatch.delenv("REMUDA_OUTPUTS")
    write_outputs(a=2)


def test_outputs_and_inputs_are_not_read_by_a_link_or_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "elsewhere"
    target.write_text('{"own": 1}')
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        monkeypatch.setenv("REMUDA_OUTPUTS", str(tmp_path / name))
        with pytest.raises(StepError, match="must be a regular file"):
            write_outputs(a=1)
    monkeypatch.setenv("REMUDA_INPUTS", str(tmp_path / "link"))
    with pytest.raises(StepError, match="cannot be read"):
        read_inputs()
    assert target.read_text() == '{"own": 1}'
