import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.stdsteps.__main__ import import_step
from remuda.stdsteps.common.inputs import Inputs


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a step in the folder `work`, in this process, and returns the step's outputs."""
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    monkeypatch.chdir(work)

    def run(step: str, **inputs: Any) -> dict[str, Any]:
        file = tmp_path / "outputs"
        file.unlink(missing_ok=True)
        monkeypatch.setenv("REMUDA_OUTPUTS", str(file))
        import_step(step).run(Inputs(inputs))
        lines = file.read_text().splitlines() if file.exists() else []
        return {entry["name"]: entry["value"] for entry in map(json.loads, lines)}

    return run
