"""Explains the state of a job, as text and as data: what it waits for, or why it ended, and what a user could do."""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from remuda.cell.core.waiting import blocking_jobs
from remuda.cell.core.waiting.no_runner_reasons import RunnerSupply, explain_no_runner, rough_duration, runner_label
from remuda.cell.values import Family, Job, Pipeline, Runner
from remuda.lib.clock import rfc3339
from remuda.model.job import FINAL, FailureReason, Fault, JobState, fault_of
from remuda.wire.explanations import EstimateInfo, FailureInfo, JobRef, JobWhy, QueueInfo, RunnerCounts, WaitInfo

NAMED = 10
"""Number of jobs that are listed by name; a job may wait for thousands."""

_WHOSE = {
    Fault.USER: "the job's own script or configuration",
    Fault.RUNNER: "the runner or its machine",
    Fault.PLATFORM: "the cell",
}
_ADVICE = {
    FailureReason.SCRIPT_FAILURE: "read its log: remuda job log {id}",
    FailureReason.JOB_EXECUTION_TIMEOUT: "give it more time with `timeout`, or see in its log what takes so long: "
    "remuda job log {id}",
    FailureReason.TRACE_SIZE_EXCEEDED: "let it print less",
    FailureReason.RUNNER_SYSTEM_FAILURE: "retry it; the log of its runner manager has the error",
    FailureReason.RUNNER_CONFIGURATION_ERROR: "change the runner, or what the job asks of it; then retry it: "
    "remuda job retry {id}",
    FailureReason.RUNNER_UNSUPPORTED: "give it tags that select a runner with the features that it needs",
    FailureReason.NO_UPDATES_RUNNING: "retry it; check whether its runner manager still runs",
    FailureReason.STUCK_PENDING_NO_MATCHING_RUNNERS: "add a runner that fits it, or start one that does; then retry it",
    FailureReason.STUCK_PENDING_WITH_MATCHING_RUNNERS: "add runners, or give it a higher priority; then retry it",
    FailureReason.SERVER_TIMEOUT_RUNNING: "check whether its runner manager still works; it should have ended the job",
    FailureReason.STALE_SCHEDULE: "retry it, if it should still run",
    FailureReason.SCHEDULER_FAILURE: "see the cell's log, which says what failed; then retry it",
    FailureReason.ARCHIVED_FAILURE: "unarchive the project, then retry it",
    FailureReason.USER_BLOCKED: "start a new pipeline as a user who is not blocked; a retry would run as the same user",
    FailureReason.STUCK_OR_TIMEOUT_FAILURE: "retry it; check whether its runner manager still runs",
    FailureReason.IMAGE_PULL_FAILURE: "check the name of its image and whether its runner may pull it",
    FailureReason.DOWNSTREAM_PROJECT_NOT_FOUND: "check the path in `trigger`",
    FailureReason.DOWNSTREAM_TOO_DEEP: "shorten the chain of pipelines that start each other",
    FailureReason.DATA_INTEGRITY_FAILURE: "retry it; the cell's log says more",
}


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all values that are needed to explain its state."""

    job: Job
    family: Family
    project: str
    now: float
    runner: Runner | None = None
    """The runner that has or had the job."""
    holder: Job | None = None
    """The job that occupies its resource group."""
    first_of_group: Job | None = None
    """The job that gets its resource group next, by the process mode of the group."""
    process_mode: str = ""
    downstream: Pipeline | None = None
    downstream_project: str = ""
    upstream: Job | None = None
    """The trigger job that started its pipeline."""
    explain_no_runner: RunnerSupply | None = None
    """The runners and the position in the queue of a pending job; None for other jobs."""
    missing_runner: str = ""
    """Why no runner could take a job that is not pending yet; empty if one could, and for other jobs."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Those fields of the API answer `JobWhy` that depend on the state of the job."""

    summary: str
    since: float | None = None
    waits_for: tuple[WaitInfo, ...] = ()
    not_named: int = 0
    runners: RunnerCounts | None = None
    queue: QueueInfo | None = None
    estimate: EstimateInfo | None = None
    because: tuple[JobRef, ...] = ()
    failure: FailureInfo | None = None
    advice: tuple[str, ...] = ()


def explain(situation: Situation) -> JobWhy:
    job = situation.job
    answer = _explain_state(situation)
    if situation.missing_runner and job.state not in FINAL:
        advice = f"it will then wait for a runner: {situation.missing_runner}"
        answer = msgspec.structs.replace(answer, advice=(*answer.advice, advice))
    later = max((other.id for other in situation.family.jobs if other.name == job.name), default=job.id)
    again = later if job.retried and later != job.id else None
    why = ", because its script had not begun; this attempt does not count" if job.lost else ""
    return JobWhy(
        job_id=job.id,
        name=job.name,
        pipeline_id=job.pipeline_id,
        project=situation.project,
        status=job.status(),
        state=job.state.value,
        warnings=job.warnings,
        tried_again_as=again,
        upstream=ref(situation.upstream) if situation.upstream else None,
        **msgspec.structs.asdict(answer)
        | {"summary": answer.summary + (f"; it was tried again as job {again}{why}" if again else "")},
    )


def ref(job: Job) -> JobRef:
    return JobRef(id=job.id, name=job.name, stage=job.stage, status=job.status(), pipeline_id=job.pipeline_id)


def _explain_state(situation: Situation) -> _Answer:
    job = situation.job
    match job.state:
        case JobState.CREATED:
            return _explain_created(situation)
        case JobState.WAITING_FOR_RESOURCE:
            return _explain_resource(situation)
        case JobState.PREPARING:
            wait = WaitInfo(kind="cell", text="its preparation")
            return _Answer(summary="waits for its preparation", waits_for=(wait,), since=job.updated_at)
        case JobState.SCHEDULED:
            return _explain_delayed(situation)
        case JobState.MANUAL:
            return _explain_manual(situation)
        case JobState.PENDING:
            return _explain_pending(situation)
        case JobState.LEASED:
            return _explain_leased(situation)
        case JobState.RUNNING:
            return _explain_running(situation)
        case JobState.CANCELING:
            return _explain_canceling(situation)
        case JobState.SUCCESS:
            started = f"; it started pipeline {situation.downstream.id}" if situation.downstream else ""
            return _Answer(summary=f"succeeded{started}", since=job.finished_at)
        case JobState.FAILED:
            return _explain_failed(situation)
        case JobState.CANCELED:
            return _explain_canceled(situation)
        case JobState.SKIPPED:
            cause = blocking_jobs.explain_skip(job, situation.family)
            because = tuple(ref(other) for other in cause.jobs)
            return _Answer(summary=f"was skipped: {cause.text}", since=job.finished_at, because=because)
        case _:
            assert_never(job.state)


def _play(job: Job) -> str:
    return f"remuda job play {job.id}"


def _explain_created(situation: Situation) -> _Answer:
    job = situation.job
    ahead = blocking_jobs.open_prerequisites(job, situation.family)
    if not ahead:
        text = "nothing blocks it; the cell is about to update its state"
        return _Answer(summary=text, since=job.created_at, waits_for=(WaitInfo(kind="cell", text=text),))
    jobs = ahead[:NAMED]
    waits: list[WaitInfo] = []
    if job.by_stage:
        for stage in dict.fromkeys(other.stage for other in ahead):
            count = sum(other.stage == stage for other in ahead)
            waits.append(
                WaitInfo(kind="stage", text=f'{_jobs(count)} of stage "{stage}"', stage=stage, count=count),
            )
    waits += [WaitInfo(kind="job", text=f'"{other.name}", which is {other.status()}', job=ref(other)) for other in jobs]
    manual = [other for other in jobs if other.state is JobState.MANUAL]
    waits += [
        WaitInfo(kind="person", text=f'somebody must start "{other.name}"', job=ref(other), how=_play(other))
        for other in manual
    ]
    which = f"{_jobs(len(ahead))} of earlier stages" if job.by_stage else f"{_jobs(len(ahead))} that it needs"
    return _Answer(
        summary=f"waits for {which}: {_list_jobs(ahead)}",
        since=job.created_at,
        waits_for=tuple(waits),
        not_named=len(ahead) - len(jobs),
        advice=tuple(f'start "{other.name}" by hand: {_play(other)}' for other in manual),
    )


def _explain_resource(situation: Situation) -> _Answer:
    job, holder = situation.job, situation.holder
    first = situation.first_of_group
    if holder is None and first is not None and first.id != job.id:
        text = (
            f'the resource group "{job.resource_group}", whose process mode {situation.process_mode} lets job '
            f'{first.id} "{first.name}" of pipeline {first.pipeline_id} go first ({first.status()})'
        )
        wait = WaitInfo(kind="resource_group", text=text, resource_group=job.resource_group, job=ref(first))
        return _Answer(summary=f"waits for {text}", since=job.updated_at, waits_for=(wait,))
    if holder is None:
        text = f'the resource group "{job.resource_group}" is free and goes to this job next'
        wait = WaitInfo(kind="resource_group", text=text, resource_group=job.resource_group)
        return _Answer(summary=text, since=job.updated_at, waits_for=(wait,))
    text = (
        f'the resource group "{job.resource_group}", which job {holder.id} "{holder.name}" of pipeline '
        f"{holder.pipeline_id} has ({holder.status()})"
    )
    wait = WaitInfo(kind="resource_group", text=text, resource_group=job.resource_group, job=ref(holder))
    return _Answer(summary=f"waits for {text}", since=job.updated_at, waits_for=(wait,))


def _explain_delayed(situation: Situation) -> _Answer:
    job = situation.job
    until = job.scheduled_at or situation.now
    seconds = until - situation.now
    text = f"{rfc3339(until)}, in {rough_duration(seconds)}" if seconds > 0 else "now: its time has come"
    wait = WaitInfo(kind="time", text=text, until=until)
    return _Answer(
        summary=f"is delayed until {text}",
        since=job.updated_at,
        waits_for=(wait,),
        advice=(f"start it now: {_play(job)}",),
    )


def _explain_manual(situation: Situation) -> _Answer:
    job = situation.job
    wait = WaitInfo(kind="person", text="somebody must start it", how=_play(job))
    rest = "" if job.allow_failure else ", and later stages of its pipeline wait for it"
    return _Answer(
        summary=f"waits for a person to start it{rest}",
        since=job.updated_at,
        waits_for=(wait,),
        advice=(f"start it: {_play(job)}",),
    )


def _explain_pending(situation: Situation) -> _Answer:
    job = situation.job
    if job.is_trigger or situation.explain_no_runner is None:
        text = "the cell is about to start its pipeline" if job.is_trigger else "waits for a runner"
        kind = "cell" if job.is_trigger else "runner"
        return _Answer(summary=text, since=job.pending_at, waits_for=(WaitInfo(kind=kind, text=text),))
    reason = explain_no_runner(job, situation.explain_no_runner, situation.now)
    return _Answer(
        summary=f"waits for a runner: {reason.text}",
        since=job.pending_at,
        waits_for=(WaitInfo(kind="runner", text=reason.text),),
        runners=reason.runners,
        queue=reason.queue,
        estimate=reason.estimate,
        advice=reason.advice,
    )


def _explain_leased(situation: Situation) -> _Answer:
    job = situation.job
    text = f"{_runner(situation)} to start it"
    until = rfc3339(job.lease_until) if job.lease_until else ""
    rest = f"; if the runner does not call by {until}, the job is pending again" if until else ""
    if not job.two_phase:
        summary = f"runs on {_runner(situation)}, which got it and has not called about it yet{rest}"
        return _Answer(summary=summary, since=job.leased_at)
    return _Answer(
        summary=f"was handed out, and waits for {text}{rest}",
        since=job.leased_at,
        waits_for=(WaitInfo(kind="runner", text=text, until=job.lease_until),),
    )


def _explain_running(situation: Situation) -> _Answer:
    job = situation.job
    if not job.is_trigger:
        return _Answer(summary=f"runs on {_runner(situation)}", since=job.started_at)
    if situation.downstream is None:
        text = "the cell is starting its pipeline"
        return _Answer(summary=text, since=job.started_at, waits_for=(WaitInfo(kind="cell", text=text),))
    wait = _downstream(situation, situation.downstream)
    return _Answer(summary=f"waits for {wait.text}", since=job.started_at, waits_for=(wait,))


def _explain_canceling(situation: Situation) -> _Answer:
    job = situation.job
    if job.is_trigger and situation.downstream is not None:
        wait = _downstream(situation, situation.downstream)
        return _Answer(summary=f"is being canceled, and waits for {wait.text}", since=job.updated_at, waits_for=(wait,))
    wait = WaitInfo(kind="runner", text=f"{_runner(situation)} to stop it; its after_script may still run")
    return _Answer(summary=f"is being canceled, and waits for {wait.text}", since=job.updated_at, waits_for=(wait,))


def _downstream(situation: Situation, pipeline: Pipeline) -> WaitInfo:
    project = situation.downstream_project
    return WaitInfo(
        kind="pipeline",
        text=f"pipeline {pipeline.id} of {project or 'another project'}, which is {pipeline.status}",
        pipeline_id=pipeline.id,
        project=project,
        status=pipeline.status,
    )


def _explain_failed(situation: Situation) -> _Answer:
    job = situation.job
    try:
        reason = FailureReason(job.failure_reason or "")
    except ValueError:
        reason = FailureReason.UNKNOWN_FAILURE
    fault = fault_of(reason)
    words = [(job.failure_reason or reason.value).replace("_", " ")]
    if job.exit_code is not None:
        words.append(f"exit code {job.exit_code}")
    if job.failure_message:
        # Further sentences say more or what to do; clients have them in `failure`.
        words.append(job.failure_message.partition(". ")[0])
    allowed = ", which is allowed" if job.allow_failure else ""
    return _Answer(
        summary=f"failed{allowed}: {', '.join(words)}; it is a failure of {_WHOSE[fault]}",
        since=job.finished_at,
        failure=FailureInfo(
            reason=job.failure_reason or reason.value,
            fault=fault.value,
            message=job.failure_message or "",
            exit_code=job.exit_code,
            allowed=job.allow_failure,
        ),
        advice=(_ADVICE[reason].format(id=job.id),) if reason in _ADVICE else (),
    )


def _explain_canceled(situation: Situation) -> _Answer:
    job = situation.job
    when = "before it had started" if job.started_at is None else "while it ran"
    causes = blocking_jobs.find_cancel_causes(job, situation.family)
    why = f", because {_list_jobs(causes)} failed and its pipeline cancels all jobs then" if causes else ""
    return _Answer(
        summary=f"was canceled {when}{why}", since=job.finished_at, because=tuple(ref(other) for other in causes)
    )


def _runner(situation: Situation) -> str:
    if situation.runner is None:
        return f"runner {situation.job.runner_id}" if situation.job.runner_id else "its runner"
    system = f" ({situation.job.system_id})" if situation.job.system_id else ""
    return f"{runner_label(situation.runner)}{system}"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _list_jobs(jobs: Sequence[Job]) -> str:
    shown = ", ".join(f'"{job.name}" ({job.status()})' for job in jobs[:3])
    return f"{shown} and {len(jobs) - 3} more" if len(jobs) > 3 else shown
