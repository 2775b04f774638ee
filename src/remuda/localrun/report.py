"""Summarizes a finished run: a table for people, a JSON document for programs, and the exit code. Pure. A job's time is
split by its steps. The rest is called overhead: sending the job to the runner, starting the agent, last uploads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from remuda.lib.exits import Exit
from remuda.localrun.junit import TestReport
from remuda.localrun.render.log_text import without_escapes
from remuda.localrun.render.step_events import StepView
from remuda.localrun.render.words import duration, plural
from remuda.localrun.view import JobView, RunView, note_of

VERSION = 1
"""Version of the JSON document."""
SHOWN_FAILURES = 20
"""How many failed tests the summary for people shows."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The last state of a run, with the logs and test reports that were downloaded after its end."""

    view: RunView
    tails: Mapping[int, Sequence[str]] = msgspec.field(default_factory=dict)
    """Log lines by job id: the end of each failed job's log, or the whole log of every job that started."""
    has_whole_logs: bool = False
    tests: Sequence[TestReport] = ()
    interrupted: bool = False

    @property
    def log_title(self) -> str:
        """The heading above a job's log lines: `log`, or `end of the log` if only the end is shown."""
        return "log" if self.has_whole_logs else "end of the log"

    @property
    def exit(self) -> Exit:
        """The exit code of `remuda run`: interrupted, success (also for a skipped pipeline), or failure."""
        if self.interrupted:
            return Exit.INTERRUPTED
        return Exit.SUCCESS if self.view.status in ("success", "skipped") else Exit.FAILURE


class Line(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    status: str
    waited: str
    ran: str
    where: str
    note: str


def lines(view: RunView) -> list[Line]:
    return [
        Line(
            job=name,
            status=job.status,
            waited="" if job.waiting_seconds is None else duration(job.waiting_seconds),
            ran="" if (seconds := job.seconds(view.now)) is None else duration(seconds),
            where=_join_times(time_by_step(job, view.now)),
            note=note_of(job, view.now),
        )
        for name, _, job in view.all_jobs()
    ]


def time_by_step(job: JobView, now: float) -> dict[str, float]:
    """Return the seconds per step name, longest first, with `overhead` for the rest of the job's time. Time in nested
    steps counts only for the inner step."""
    total = job.seconds(now)
    if total is None:
        return {}
    by_name: dict[str, float] = {}
    # A step that never reported its end lasted no longer than its job.
    now = now if job.finished_at is None else job.finished_at
    for step in job.steps:
        seconds = step.seconds(now) if step.own_seconds is None else step.own_seconds
        by_name[step.name] = by_name.get(step.name, 0.0) + (seconds or 0.0)
    if by_name:
        by_name["overhead"] = max(total - sum(by_name.values()), 0.0)
    return dict(sorted(by_name.items(), key=lambda item: -item[1]))


def total_time_by_step(view: RunView) -> dict[str, float]:
    """Return seconds per step name over all jobs, with `overhead` (outside of steps) and `waiting` (before start)."""
    total: dict[str, float] = {}
    for _, _, job in view.all_jobs():
        for name, seconds in time_by_step(job, view.now).items():
            total[name] = total.get(name, 0.0) + seconds
        if job.waiting_seconds:
            total["waiting"] = total.get("waiting", 0.0) + job.waiting_seconds
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def headline(view: RunView) -> str:
    """Return a sentence about the whole run: its status, its duration, and the number of jobs by status."""
    counts: dict[str, int] = {}
    for _, _, job in view.all_jobs():
        counts[job.status] = counts.get(job.status, 0) + 1
    jobs = ", ".join(f"{count} {status}" for status, count in counts.items())
    text = f"pipeline {view.status} in {duration(wall_seconds(view))}: {jobs}"
    waiting = [job.name for job in view.jobs if job.status == "manual" and not job.allow_failure]
    if view.status == "manual" and waiting:
        text += f"; it is blocked by a manual job ({', '.join(waiting)}), which --manual '{waiting[0]}' starts"
    failed = [pipeline for pipeline in view.pipelines() if pipeline.status == "failed"]
    if view.status == "success" and failed:
        # Without `strategy: depend`, a trigger job succeeds whatever happens to its pipeline.
        text += f"; {plural(len(failed), 'pipeline')} that it started failed"
    return text


def where_time_went(view: RunView) -> str:
    return _join_times(total_time_by_step(view))


def wall_seconds(view: RunView) -> float:
    """Return the seconds from the creation of the first job to the end of the last one; 0 if no job ended."""
    jobs = [job for _, _, job in view.all_jobs()]
    created = [job.created_at for job in jobs if job.created_at is not None]
    ended = [job.finished_at for job in jobs if job.finished_at is not None]
    return max(max(ended) - min(created), 0.0) if created and ended else 0.0


def lines_of_tests(reports: Sequence[TestReport]) -> Iterator[str]:
    for report in reports:
        words = [f"{report.passed} passed"]
        for count, word in ((report.failed, "failed"), (report.skipped, "skipped")):
            words += [f"{count} {word}"] if count else []
        words += [plural(report.errors, "error")] if report.errors else []
        words += [f"the report could not be read completely: {report.problem}"] if report.problem else []
        yield f"tests of {report.job}: {', '.join(words)}"
    failures = [(report.job, failure) for report in reports for failure in report.failures]
    for job, failure in failures[:SHOWN_FAILURES]:
        yield ""
        place = f" ({failure.place})" if failure.place else ""
        suite = f"{failure.suite}: " if failure.suite else ""
        yield without_escapes(f"{failure.kind} in {job}: {suite}{failure.name}{place}")
        yield from (f"  {without_escapes(line)}" for line in failure.message.splitlines())
    hidden = sum(report.failed + report.errors for report in reports) - len(failures[:SHOWN_FAILURES])
    if hidden > 0:
        yield f"\nand {hidden} more; --output json and --artifacts have them"


def document(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON document that `--output json` prints."""
    view = outcome.view
    return {
        "version": VERSION,
        "pipeline_id": view.pipeline_id,
        "status": view.status,
        "duration": round(wall_seconds(view), 3),
        "interrupted": outcome.interrupted,
        "exit_code": int(outcome.exit),
        "jobs": [_job(job, view.now, outcome.tails) for job in view.jobs],
        "tests": [_tests(report) for report in outcome.tests],
    }


def _job(job: JobView, now: float, tails: Mapping[int, Sequence[str]]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": job.id,
        "name": job.name,
        "stage": job.stage,
        "status": job.status,
        "allow_failure": job.allow_failure,
        "waiting": _round(job.waiting_seconds),
        "duration": _round(job.seconds(now)),
        "failure_reason": job.failure_reason,
        "exit_code": job.exit_code,
        "coverage": job.coverage,
        "image": job.containers.image or None if job.containers else None,
        "services": list(job.containers.services) if job.containers else [],
        "image_and_services_ignored": job.containers is not None and job.containers.is_ignored,
        "log_tail": [without_escapes(line) for line in tails.get(job.id, ())],
        "steps": [_step(step, now) for step in job.steps],
    }
    if job.downstream is not None:
        below = job.downstream
        entry["downstream"] = {
            "pipeline_id": below.pipeline_id,
            "project": below.project,
            "status": below.status,
            "jobs": [_job(each, now, tails) for each in below.jobs],
        }
    return entry


def _step(step: StepView, now: float) -> dict[str, Any]:
    return {
        "name": step.name,
        "path": step.path,
        "status": step.status,
        "duration": _round(step.seconds(now)),
        "exit_code": step.exit_code,
    }


def _tests(report: TestReport) -> dict[str, Any]:
    return {
        "job": report.job,
        "total": report.tests,
        "passed": report.passed,
        "failed": report.failed,
        "errors": report.errors,
        "skipped": report.skipped,
        "problem": report.problem or None,
        "failures": [{**msgspec.structs.asdict(failure), "file": failure.file or None} for failure in report.failures],
    }


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _join_times(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds >= 0.05)
