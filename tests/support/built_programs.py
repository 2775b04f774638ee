"""Programs of others, and frozen ones of ours, that `make` builds before the tests that need them."""

from pathlib import Path

import pytest


def require_built(program: Path, target: str = "interop") -> None:
    """Fail the test if the program is not there; `target` of the Makefile builds it."""
    if not program.exists():
        pytest.fail(f"{program} is missing; run the tests by `make {target}`, which builds it")
