"""Why a job stands where it stands, for people, line by line. Pure.

What is said is decided by the cell; here it is only laid out.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from remuda.cli.render.step_events import duration
from remuda.wire.explanations import JobWhy, RunnerCounts


def reasons(found: Mapping[str, Any], now: float) -> list[str]:
    """The answer of a cell as lines."""
    told = msgspec.convert(found, JobWhy)
    since = f" for {duration(now - told.since)}" if told.since is not None and told.since < now else ""
    return [
        f"job {told.job_id}: {told.name} ({told.project}, pipeline {told.pipeline_id})",
        f"  {told.status}{since}: {told.summary}",
        *(f"  {line}" for line in _details(told)),
    ]


def _details(told: JobWhy) -> Iterator[str]:
    waits = [wait for wait in told.waits_for if wait.kind in ("stage", "job", "person")]
    if len(waits) > 1:
        yield "waits for"
        yield from (f"  {wait.text}" for wait in waits)
        if told.not_named:
            yield f"  and {told.not_named} more"
    if told.runners is not None:
        yield from _runners(told.runners)
    if told.queue is not None:
        queue = told.queue
        grown = f", {queue.priority_now} by waiting" if queue.priority_now != queue.priority else ""
        yield f"queue      {queue.ahead} of {queue.competing} go before it; priority {queue.priority}{grown}"
        yield f"project    has {queue.project_running} with runners; the project with fewer goes first"
        yield f"estimate   {told.estimate.text if told.estimate else 'unknown'}"
    if told.because:
        yield "because of"
        yield from (f'  job {job.id} "{job.name}", which is {job.status}' for job in told.because)
    if told.upstream is not None:
        yield f'started by job {told.upstream.id} "{told.upstream.name}" of pipeline {told.upstream.pipeline_id}'
    if told.advice:
        yield "what to do"
        yield from (f"  {text}" for text in told.advice)


def _runners(counts: RunnerCounts) -> Iterator[str]:
    standing = {
        "free": counts.free,
        "busy": counts.busy,
        "silent": counts.silent,
        "offline": counts.offline,
        "never seen": counts.never_seen,
        "paused": counts.paused,
    }
    words = ", ".join(f"{count} {word}" for word, count in standing.items() if count)
    yield f"runners    {counts.matching} of {counts.known} match{f': {words}' if words else ''}"
    if counts.last_seen_at is not None and not (counts.free or counts.busy):
        seen = datetime.fromtimestamp(counts.last_seen_at).astimezone()
        yield f"           last heard of at {seen:%Y-%m-%d %H:%M:%S}"
    yield from (f"           {other.count}: {other.reason}" for other in counts.others)
