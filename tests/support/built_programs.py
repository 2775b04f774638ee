"""Check for programs that `make` builds before the tests that need them: programs of others, and the frozen agent."""

from pathlib import Path

import pytest


def require_built(program: Path, target: str = "interop") -> None:
    """Fail the test if the program is missing. `target` of the Makefile builds it."""
    if not program.exists():
        pytest.fail(f"{program} is missing; run the tests by `make {target}`, which builds it")
