"""Step definitions that a test writes to disk."""

import json
from pathlib import Path
from typing import Any


def write_step(folder: Path, definition: Any, spec: Any = None) -> None:
    """Create `folder` with a func.yml of this definition. It may use Remuda's extensions of the step language."""
    folder.mkdir(parents=True)
    head = {"spec": {"remuda": 1} | (spec or {})}
    (folder / "func.yml").write_text(f"{json.dumps(head)}\n---\n{json.dumps(definition)}\n")


def open_command(environment: dict[str, Any]) -> list[str]:
    """The command of a step that opens an environment: it writes the environment to the step's outputs."""
    output = json.dumps({"name": "environment", "value": environment})
    return ["sh", "-c", f"echo '{output}' >>$REMUDA_OUTPUTS"]
