"""Splits the duration of a job into parts: waiting, machine, image, clone, cache, artifacts, script, upload, other. The
cell's clock measures the total, from pending to ended. The durations of steps or log sections come from clocks of other
machines; so they are cut where their sum would exceed the time since the runner got the job. The time of a step does
not include its sub-steps. The time from when the runner got the job to its first step or section is `machine`, but not
more than the steps or sections leave over. The rest is `other`. Invariant: the parts sum to the total."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from remuda.cell.values import Job
from remuda.model.step_tree import OwnTime, own_times, tree_of
from remuda.wire.explanations import TimeSplit

PARTS = ("waiting", "machine", "image", "clone", "cache", "artifacts", "script", "upload", "other")

_PACKAGES = {
    "container": "image",
    "service": "image",
    "service_stop": "image",
    "checkout": "clone",
    "cache_restore": "cache",
    "cache_save": "cache",
    "artifacts_download": "artifacts",
    "artifacts_upload": "upload",
    "sign": "upload",
}
"""Parts of standard steps, by the name in their reference."""
_STEPS = {
    "pre_get_sources_script": "clone",
    "post_get_sources_script": "clone",
    "pre_build_script": "script",
    "post_build_script": "script",
}
"""Parts of other steps that the manager adds, by name."""
_SECTIONS = {
    "prepare_executor": "image",
    "prepare_script": "machine",
    "get_sources": "clone",
    "restore_cache": "cache",
    "download_artifacts": "artifacts",
    "build_script": "script",
    "step_script": "script",
    "after_script": "script",
    "archive_cache": "cache",
    "archive_cache_on_failure": "cache",
    "upload_artifacts_on_success": "upload",
    "upload_artifacts_on_failure": "upload",
    "upload_artifacts": "upload",
    "cleanup_file_variables": "other",
}
"""Parts of the log sections of gitlab-runner, of all its versions."""
_MARKER = re.compile(rb"section_(start|end):([0-9]{1,12}):([A-Za-z0-9_.-]{1,64})")
_REFERENCE = re.compile(r"builtin://([A-Za-z0-9_]+)")


class Span(NamedTuple):
    """The time of a step or log section by the runner's clock: the part it counts for (as `clone`), start, length."""

    part: str
    began: float
    seconds: float


def spans_of_steps(results: Iterable[Any], now: float) -> list[Span]:
    """Convert step results to sorted spans, each without the time of its sub-steps. A running step ends at `now`."""
    spans = [Span(_part(own), own.began, own.seconds) for own in own_times(tree_of(results), now)]
    return sorted(spans, key=lambda span: span.began)


def _part(own: OwnTime) -> str:
    step = own.step
    if step.get("origin") == "user":
        return "script"
    match = _REFERENCE.match(str(step.get("reference")))
    part = _PACKAGES.get(match[1] if match else "") or _STEPS.get(str(step.get("name")))
    return part or (_part(own.above) if own.above is not None else "other")


def spans_of_sections(log: bytes) -> list[Span]:
    """Return the time spans of the sections that the runner itself marks in a log, such as `get_sources`. `log` may be
    the beginning and end of a long log. A section without end marker ends at the next marker, or is left out if there
    is none. Markers inside a section are ignored: the job's own commands may have printed them."""
    all_markers = [(kind == b"start", float(time), name.decode()) for kind, time, name in _MARKER.findall(log)]
    markers = [marker for marker in all_markers if marker[2] in _SECTIONS]
    last_end = {name: number for number, (begins, _, name) in enumerate(markers) if not begins}
    spans: list[Span] = []
    inside: tuple[str, float] | None = None
    for number, (begins, time, name) in enumerate(markers):
        if inside is not None and ((not begins and name == inside[0]) or last_end.get(inside[0], -1) < number):
            spans.append(Span(_SECTIONS[inside[0]], inside[1], max(time - inside[1], 0.0)))
            inside = None
        if begins and inside is None:
            inside = (name, time)
    return spans


def split(job: Job, spans: Sequence[Span], source: str, now: float) -> TimeSplit | None:
    """Split a job's duration, up to its end or `now`, into parts; None if it was never pending. `source` says what the
    spans were read from: `steps` or `sections`. Without spans there are only the parts `waiting` and `running`."""
    if job.pending_at is None:
        return None
    began = job.pending_at
    ended = max(job.finished_at or now, began)
    handed = min(max(job.leased_at if job.leased_at is not None else ended, began), ended)
    total, waiting = _micros(ended - began), _micros(handed - began)
    remaining = total - waiting
    if not spans or job.is_trigger or job.leased_at is None:
        return _time_split("times", total, {"waiting": waiting, "running": remaining})
    parts = dict.fromkeys(PARTS, 0) | {"waiting": waiting}
    accounted = min(sum(_micros(span.seconds) for span in spans), remaining)
    parts["machine"] = min(_micros(max(spans[0].began - handed, 0.0)), remaining - accounted)
    remaining -= parts["machine"]
    for span in spans:
        took = min(_micros(span.seconds), remaining)
        parts[span.part] += took
        remaining -= took
    parts["other"] += remaining
    return _time_split(source, total, parts)


def _time_split(source: str, total: int, parts: Mapping[str, int]) -> TimeSplit:
    return TimeSplit(
        source=source, total_seconds=total / 1e6, parts={name: micros / 1e6 for name, micros in parts.items()}
    )


def _micros(seconds: float) -> int:
    """Convert seconds to whole microseconds, so that sums are exact."""
    return round(min(seconds, 4e9) * 1e6)
