"""The coverage of a job, out of its log.

Decided here, as in GitLab: the last line that the job's expression matches counts, in it the last match, of that the
last group (or all of it), and of that the first number. Colours and the time stamps of runners are no part of a line.
Only the end of a log is looked at, and only so many steps long; a job that cannot be measured has no coverage, and
nothing else comes of it. The edge calls it when a job has ended, and again when a runner says so twice.
"""

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
    """The job with its coverage, if it is over and its log tells one; `spec` is the job's, if the caller has it."""
    if job.state not in FINAL or job.coverage is not None or job.started_at is None or job.ends_alone:
        return job
    try:
        spec = spec or await store.jobs.load_spec(job.id)
        if spec is None or not spec.coverage:
            return job
        log = await _tail(traces, job)
        found = await asyncio.to_thread(coverage_in, log, spec.coverage)
        if found is None:
            return job
        return await store.jobs.change_job(job.id, lambda row: replace(row, coverage=found)) or job
    except (CellError, PatternError, TooCostlyError) as error:
        _log.warning("the coverage of a job cannot be told", job=job.id, error=str(error) or type(error).__name__)
        return job


async def _tail(traces: Traces, job: Job) -> bytes:
    start = max(await traces.size(job.id) - TAIL_BYTES, 0)
    log = b"".join([piece async for piece in traces.read(job.id, start)])
    return log.partition(b"\n")[2] if start else log


def coverage_in(log: bytes, expression: str) -> float | None:
    """The coverage that a log tells. TooCostlyError, PatternError when the expression is too much."""
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
        # A line without a number cannot tell one, and most lines of most logs have none.
        taken = pattern.last_match(line, spend) if _NUMBER.search(line) else None
        number = _NUMBER.search(taken) if taken else None
        if number and math.isfinite(value := float(number[0])):
            return value
    return None


def lines_of(log: str) -> Sequence[str]:
    """The lines as the job wrote them."""
    lines: list[str] = []
    for line in log.split("\n"):
        stamp = _STAMP.match(line)
        text = _CONTROLS.sub("", line[stamp.end() :] if stamp else line).rstrip("\r")
        if stamp and stamp[1] == "+" and lines:
            lines[-1] += text
        else:
            lines.append(text)
    return lines
