"""Reads the test coverage of a job from its log.

As in GitLab, the last line of the log in which the job's `coverage` expression matches a number is used. Of that line
the last match is taken, of the match the last group (or all of it if there are no groups), and of that the first
number. Only the end of a log is searched, with a limited number of steps; if that fails, the job has no coverage."""

import asyncio
import math
import re
from collections.abc import Sequence

from msgspec.structs import replace

from remuda.cell.errors import CellError
from remuda.cell.store.ports import Store
from remuda.cell.traces.port import Traces
from remuda.cell.values import Job
from remuda.model.job import FINAL
from remuda.pipeline import JobSpec
from remuda.pipeline.rules.regex import PatternError, TooCostlyError, compile_pattern, split_literal
from remuda.telemetry.logs import logger

TAIL_BYTES = 1024 * 1024
MAX_STEPS = 100_000_000
"""At most three seconds of work, in a thread; see `remuda.pipeline.rules.regex`."""

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_STAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z [0-9a-f]{2}[OE]([ +])", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]+)?", re.ASCII)

_log = logger("cell")


async def measure_coverage(store: Store, traces: Traces, job: Job, spec: JobSpec | None = None) -> Job:
    """Store the coverage found in the log of a finished job. Returns the job, unchanged if no coverage can be read."""
    if job.state not in FINAL or job.coverage is not None or job.started_at is None or job.ends_alone:
        return job
    spec = spec or await store.jobs.load_spec(job.id)
    coverage = await read_coverage(traces, job, spec.coverage) if spec else None
    if coverage is None:
        return job
    return await store.jobs.change_job(job.id, lambda row: replace(row, coverage=coverage)) or job


async def read_coverage(traces: Traces, job: Job, expression: str) -> float | None:
    """Return the coverage that the regular expression `expression`, between slashes, finds in the log of a job. None if
    it finds none, or is empty or invalid, or the log cannot be read."""
    if not expression:
        return None
    try:
        return await asyncio.to_thread(coverage_in, await _tail(traces, job), expression)
    except (CellError, PatternError, TooCostlyError) as error:
        _log.warning(
            "cannot read coverage from a job log; the job has none",
            job=job.id,
            error=str(error) or type(error).__name__,
        )
        return None


async def _tail(traces: Traces, job: Job) -> bytes:
    start = max(await traces.size(job.id) - TAIL_BYTES, 0)
    log = b"".join([piece async for piece in traces.read(job.id, start)])
    return log.partition(b"\n")[2] if start else log


def coverage_in(log: bytes, expression: str) -> float | None:
    """Return the coverage as a number; None if no line of the log has one. `expression` is a regular expression between
    slashes. Raises PatternError if it is invalid, TooCostlyError if the search takes too many steps."""
    literal = split_literal(expression)
    if literal is None:
        return None
    pattern = compile_pattern(*literal)
    steps = 0

    def spend(more: int) -> None:
        nonlocal steps
        steps += more
        if steps > MAX_STEPS:
            raise TooCostlyError("the expression takes too long on this log")

    for line in reversed(lines_of(log.decode(errors="replace"))):
        # Most lines of most logs have no number, and need no match.
        match = pattern.last_match(line, spend) if _NUMBER.search(line) else None
        number = _NUMBER.search(match) if match else None
        if number and math.isfinite(value := float(number[0])):
            return value
    return None


def lines_of(log: str) -> Sequence[str]:
    """Return the lines that the job wrote: without time stamps and colours; lines that the runner split are joined."""
    lines: list[str] = []
    for line in log.split("\n"):
        stamp = _STAMP.match(line)
        text = _CONTROLS.sub("", line[stamp.end() :] if stamp else line).rstrip("\r")
        if stamp and stamp[1] == "+" and lines:
            lines[-1] += text
        else:
            lines.append(text)
    return lines
