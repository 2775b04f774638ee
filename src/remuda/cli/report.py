"""A finished run summed up: a table for people, a document for programs, and the exit code. Pure.

Where the time went is told by the steps that the agent reported; what a job spent outside them (hand-over, start of
the agent, sending the last bytes) is called overhead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.cli.exits import Exit
from remuda.cli.logtext import without_escapes
from remuda.cli.view import JobView, RunView, StepView, duration, note_of

VERSION = 1
"""Version of the JSON document's meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One job in the summary."""

    job: str
    status: str
    waited: str
    ran: str
    where: str
    note: str


def exit_of(view: RunView, *, interrupted: bool = False) -> Exit:
    """The exit code of a run. A pipeline of which nothing had to run has not failed."""
    if interrupted:
        return Exit.INTERRUPTED
    return Exit.SUCCESS if view.status in ("success", "skipped") else Exit.FAILURE


def lines(view: RunView) -> list[Line]:
    """The summary, a line a job."""
    return [
        Line(
            job=job.name,
            status=job.status,
            waited="" if job.waiting_seconds is None else duration(job.waiting_seconds),
            ran="" if (seconds := job.seconds(view.now)) is None else duration(seconds),
            where=_where(spent(job, view.now)),
            note=note_of(job),
        )
        for job in view.jobs
    ]


def spent(job: JobView, now: float) -> dict[str, float]:
    """Seconds per step name, longest first, with what lies outside all steps."""
    total = job.seconds(now)
    if total is None:
        return {}
    by_name: dict[str, float] = {}
    # A step that never reported its end lasted no longer than its job.
    now = now if job.finished_at is None else job.finished_at
    for step in job.steps:
        by_name[step.name] = by_name.get(step.name, 0.0) + (step.seconds(now) or 0.0)
    if by_name:
        by_name["overhead"] = max(total - sum(by_name.values()), 0.0)
    return dict(sorted(by_name.items(), key=lambda item: -item[1]))


def spent_in_all(view: RunView) -> dict[str, float]:
    """The same over all jobs, waiting included."""
    total: dict[str, float] = {}
    for job in view.jobs:
        for name, seconds in spent(job, view.now).items():
            total[name] = total.get(name, 0.0) + seconds
        if job.waiting_seconds:
            total["waiting"] = total.get("waiting", 0.0) + job.waiting_seconds
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def headline(view: RunView) -> str:
    """The run in one sentence."""
    counts: dict[str, int] = {}
    for job in view.jobs:
        counts[job.status] = counts.get(job.status, 0) + 1
    jobs = ", ".join(f"{count} {status}" for status, count in counts.items())
    text = f"pipeline {view.status} in {duration(wall_seconds(view))}: {jobs}"
    waiting = [job.name for job in view.jobs if job.status == "manual" and not job.allow_failure]
    if view.status == "manual" and waiting:
        text += f"; it is blocked by a manual job ({', '.join(waiting)}), which a local run does not start"
    return text


def where_time_went(view: RunView) -> str:
    """The total per kind of work, for the line under the table."""
    return _where(spent_in_all(view))


def wall_seconds(view: RunView) -> float:
    """From the first job's creation to the last one's end."""
    created = [job.created_at for job in view.jobs if job.created_at is not None]
    ended = [job.finished_at for job in view.jobs if job.finished_at is not None]
    return max(max(ended) - min(created), 0.0) if created and ended else 0.0


def document(view: RunView, *, tails: Mapping[int, list[str]], interrupted: bool = False) -> dict[str, Any]:
    """The run for programs."""
    return {
        "version": VERSION,
        "pipeline_id": view.pipeline_id,
        "status": view.status,
        "duration": round(wall_seconds(view), 3),
        "interrupted": interrupted,
        "exit_code": int(exit_of(view, interrupted=interrupted)),
        "jobs": [
            {
                "id": job.id,
                "name": job.name,
                "stage": job.stage,
                "status": job.status,
                "allow_failure": job.allow_failure,
                "waiting": _rounded(job.waiting_seconds),
                "duration": _rounded(job.seconds(view.now)),
                "failure_reason": job.failure_reason,
                "exit_code": job.exit_code,
                "log_tail": [without_escapes(line) for line in tails.get(job.id, ())],
                "steps": [_step(step, view.now) for step in job.steps],
            }
            for job in view.jobs
        ],
    }


def _step(step: StepView, now: float) -> dict[str, Any]:
    return {
        "name": step.name,
        "status": step.status,
        "duration": _rounded(step.seconds(now)),
        "exit_code": step.exit_code,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _where(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds >= 0.05)


def counted(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
