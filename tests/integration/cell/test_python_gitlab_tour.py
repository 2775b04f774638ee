"""The tour with python-gitlab that users find among the examples, against a real cell with a real runner manager."""

import functools
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from remuda.testing.lab import ADMIN_TOKEN, Lab

TOUR = Path(__file__).parents[3] / "examples" / "python-gitlab" / "tour.py"
ENOUGH = 125
"""Different calls of the library; GitLab's clients are held to work, so a tour that shrinks is a mistake."""


def library_calls(seen: set[str]) -> Callable[[FrameType, str, Any], None]:
    """A profiler that notes which methods of which classes of the library the tour calls itself."""

    def note(frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or caller.f_code.co_filename != str(TOUR):
            return
        if "/gitlab/" not in frame.f_code.co_filename or frame.f_code.co_name.startswith("__"):
            return
        found = frame.f_locals
        owner = found.get("self") or next(iter(found.get("args", ())), None)
        # Most methods are wrapped, to turn errors into the library's own; the wrapper knows what it wraps as `f`.
        name = getattr(found.get("f"), "__name__", frame.f_code.co_name)
        if callable(getattr(type(owner), name, None)):
            seen.add(f"{type(owner).__name__}.{name}")

    return note


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
    assert len(seen) >= ENOUGH
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
