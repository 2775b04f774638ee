"""Runs the python-gitlab tour of the examples against a real cell with a real runner manager."""

import functools
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from remuda.testing.lab import ADMIN_TOKEN, Lab

TOUR = Path(__file__).parents[3] / "examples" / "python-gitlab" / "tour.py"
MINIMUM_CALLS = 125
"""Number of different library calls. Clients of GitLab must keep working, so the tour must not shrink."""


def library_calls(seen: set[str]) -> Callable[[FrameType, str, Any], None]:
    """Create a profiler that records which methods of the library the tour itself calls."""

    def record(frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or caller.f_code.co_filename != str(TOUR):
            return
        if "/gitlab/" not in frame.f_code.co_filename or frame.f_code.co_name.startswith("__"):
            return
        variables = frame.f_locals
        owner = variables.get("self") or next(iter(variables.get("args", ())), None)
        # Most methods are wrapped to convert errors; in the wrapper the method is the variable `f`.
        name = getattr(variables.get("f"), "__name__", frame.f_code.co_name)
        if callable(getattr(type(owner), name, None)):
            seen.add(f"{type(owner).__name__}.{name}")

    return record


def test_the_tour(tmp_path: Path) -> None:
    seen: set[str] = set()
    with Lab(tmp_path) as lab:
        main = functools.partial(runpy.run_path(str(TOUR))["main"], lab.url, ADMIN_TOKEN)
        sys.setprofile(library_calls(seen))
        try:
            main()
        finally:
            sys.setprofile(None)
    print(f"{len(seen)} different calls: {', '.join(sorted(seen))}")
    assert len(seen) >= MINIMUM_CALLS
    for call in (
        "ProjectManager.create",
        "ProjectPipelineManager.create",
        "ProjectPipeline.delete",
        "ProjectJob.trace",
        "ProjectJob.artifact",
        "ProjectVariableManager.get",
        "RunnerManager.verify",
        "ProjectFile.save",
    ):
        assert call in seen
