"""Translates actions of a job's state machine to HTTP calls to the server, and the agent's events to manager types."""

from collections.abc import Sequence

import msgspec

from remuda.manager.core.actions import Acknowledge, Call, KeepAlive, SendFinal, SendResults, SendTrace
from remuda.manager.core.record import Outcome
from remuda.model.job import FailureReason
from remuda.wire.agent_client import JobEnded
from remuda.wire.runner_api import TraceOutput, UpdateJob
from remuda.wire.runner_client import JobReply, RunnerClient


class _StepEvent(msgspec.Struct):
    name: str = ""


async def call_server(
    client: RunnerClient,
    job_id: int,
    token: str,
    call: Call,
    *,
    is_traced: bool = False,
    warnings: Sequence[str] = (),
) -> JobReply:
    """Make the call for a job. `is_traced`: its scripts print their commands. `warnings`: what it does not get; sent
    when it starts, so that the cell has them before its steps run."""
    match call:
        case Acknowledge():
            return await client.update_job(job_id, token, UpdateJob(state="running", remuda_warnings=list(warnings)))
        case KeepAlive():
            output = TraceOutput(checksum=call.checksum, bytesize=call.bytesize)
            return await client.update_job(job_id, token, UpdateJob(state="running", output=output))
        case SendTrace():
            return await client.patch_trace(job_id, token, call.start, call.data, is_traced=is_traced)
        case SendResults():
            return await client.send_results(job_id, token, call.results)
        case SendFinal():
            update = UpdateJob(
                state=call.state,
                failure_reason=call.failure_reason,
                exit_code=call.exit_code or None,
                output=TraceOutput(checksum=call.checksum, bytesize=call.bytesize),
                remuda_may_have_begun=call.may_have_begun,
                remuda_message=call.message,
            )
            return await client.update_job(job_id, token, update)


def step_name(document: bytes) -> str:
    try:
        return msgspec.json.decode(document, type=_StepEvent).name
    except msgspec.MsgspecError:
        return ""


def outcome_of(event: JobEnded, *, now: float, may_hold: bool) -> Outcome:
    """Convert the agent's event about the end of a job. `now` is wall time. With `may_hold`, a failed job that the
    agent keeps for debugging is on hold until `now` plus the event's `held_seconds`."""
    succeeded = event.status == "success"
    fallback = FailureReason.JOB_CANCELED if event.status == "cancelled" else FailureReason.UNKNOWN_FAILURE
    return Outcome(
        state="success" if succeeded else "failed",
        reason="" if succeeded else event.reason or fallback,
        exit_code=max(event.exit_code, 0),
        message=event.message,
        log_bytes=event.log_bytes,
        results=event.results,
        checksum=event.log_checksum,
        held_until=now + event.held_seconds if event.held_seconds and may_hold else 0.0,
    )
