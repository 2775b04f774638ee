"""Formats the cell's explanation of a job's status as lines of text, for `remuda job why`. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from remuda.cli.render.listing import local_time
from remuda.localrun.render.words import duration
from remuda.model.job import FINAL
from remuda.wire.explanations import JobWhy, RunnerCounts


def reasons(answer: Mapping[str, Any], now: float) -> list[str]:
    why = msgspec.convert(answer, JobWhy)
    since = ""
    if why.since is not None and why.since < now:
        time = duration(now - why.since)
        since = f" {time} ago" if why.status in FINAL else f" for {time}"
    return [
        f"job {why.job_id}: {why.name} ({why.project}, pipeline {why.pipeline_id})",
        f"  {why.status}{since}: {why.summary}",
        *(f"  {line}" for line in _details(why)),
    ]


def _details(why: JobWhy) -> Iterator[str]:
    # The summary has the first sentence of the message.
    sentences = why.failure.message.split(". ")[1:] if why.failure else []
    for number, sentence in enumerate(sentences):
        yield f"{'' if number else 'details':<9}  {sentence}"
    if why.warnings:
        yield f"warning    {', '.join(why.warnings)}"
    waits = [wait for wait in why.waits_for if wait.kind in ("stage", "job", "person")]
    if len(waits) > 1:
        yield "waits for"
        yield from (f"  {wait.text}" for wait in waits)
        if why.not_named:
            yield f"  and {why.not_named} more"
    if why.runners is not None:
        yield from _runners(why.runners)
    if why.queue is not None:
        queue = why.queue
        grown = f", {queue.priority_now} by waiting" if queue.priority_now != queue.priority else ""
        yield f"queue      {queue.ahead} of {queue.competing} go before it; priority {queue.priority}{grown}"
        yield f"project    has {queue.project_running} with runners; the project with fewer goes first"
        yield f"estimate   {why.estimate.text if why.estimate else 'unknown'}"
    if why.because:
        yield "because of"
        yield from (f'  job {job.id} "{job.name}", which is {job.status}' for job in why.because)
    if why.upstream is not None:
        yield f'started by job {why.upstream.id} "{why.upstream.name}" of pipeline {why.upstream.pipeline_id}'
    if why.advice:
        yield "what to do"
        yield from (f"  {text}" for text in why.advice)


def _runners(counts: RunnerCounts) -> Iterator[str]:
    by_state = {
        "free": counts.free,
        "busy": counts.busy,
        "silent": counts.silent,
        "offline": counts.offline,
        "never seen": counts.never_seen,
        "paused": counts.paused,
        "blocked": counts.blocked,
    }
    words = ", ".join(f"{count} {word}" for word, count in by_state.items() if count)
    yield f"runners    {counts.matching} of {counts.known} match{f': {words}' if words else ''}"
    if counts.last_seen_at is not None and not (counts.free or counts.busy):
        yield f"           last heard of at {local_time(counts.last_seen_at)}"
    yield from (f"           {other.count}: {other.reason}" for other in counts.others)
