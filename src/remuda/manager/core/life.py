"""The state machine of one job in the manager: events in, actions out. Pure code without I/O.

The `on_` methods record what happened; `next_action` returns what to do, one action at a time. `Life.record` is stored
before an action if it changed enough (`Record.is_worth_storing`), and a new process continues the job from there. A job
is *found* if it was recovered from an agent, and *on hold* if it failed and is kept for debugging.

    received --PUT running: 200--> acknowledged --agent took it--> started --it ended--> ended --PUT final--> over
    found --PUT running: 200--> started   ended --PUT final, hold wanted--> on hold --released, or time is up--> over

Invariants: nothing starts before the server has confirmed; a job's machine is stored before anything happens there; the
agent is told to delete a job only when the server has its final state, no longer wants the job, or could not be told
within `Limits.ending`; then the job's folders are cleaned up, even without an agent; no wait is unlimited."""

from collections.abc import Collection, Mapping

import msgspec

from remuda.lib.backoff import Backoff
from remuda.lib.clock import stamp
from remuda.manager.core.actions import (
    Acknowledge,
    Acquire,
    Action,
    Call,
    CancelSteps,
    Close,
    Forget,
    KeepAlive,
    SendFinal,
    SendResults,
    SendTrace,
    Start,
    Subscribe,
    Wait,
)
from remuda.manager.core.limits import Limits
from remuda.manager.core.record import Outcome, Phase, Record
from remuda.manager.core.relay import CHUNK_BYTES, HIGH_BYTES, ResultRelay, TraceRelay
from remuda.model.job import FailureReason
from remuda.wire.runner_client import JobReply

DEFAULT_INTERVAL_SECONDS = 3.0
GITLAB_ACKNOWLEDGED = (202, 400, 409)
"""Answers of GitLab, besides 200, to the first PUT running: the job is ours by then. A job of a Remuda cell starts only
after 200."""
RESULTS_SECONDS = 0.2
"""Shortest time between two calls with step results."""
ALWAYS_ACCEPTED = frozenset(
    {FailureReason.SCRIPT_FAILURE, FailureReason.RUNNER_SYSTEM_FAILURE, FailureReason.JOB_EXECUTION_TIMEOUT}
)
"""Failure reasons that every server knows. A payload lists the further ones."""
_PLAIN_REASONS = frozenset({FailureReason.JOB_EXECUTION_TIMEOUT, FailureReason.JOB_CANCELED})
"""Failure reasons that say all, so that the server needs no message."""
_FALLBACK_REASONS: Mapping[str, str] = {
    FailureReason.IMAGE_PULL_FAILURE: FailureReason.RUNNER_SYSTEM_FAILURE,
    FailureReason.RUNNER_CONFIGURATION_ERROR: FailureReason.SCRIPT_FAILURE,
    FailureReason.RUNNER_EXTERNAL_DEPENDENCY_FAILURE: FailureReason.RUNNER_SYSTEM_FAILURE,
}
_EMPTY_SUBSCRIPTIONS = 3
_BACKOFF = Backoff(first_seconds=0.2, ceiling_seconds=30.0)


class Life:
    """State machine of one job. Times are seconds of a monotonic clock; adding `epoch` gives the wall time."""

    def __init__(
        self,
        record: Record,
        *,
        now: float,
        epoch: float = 0.0,
        sends_results: bool = True,
        accepted_reasons: Collection[str] = (),
        jitter: float = 1.0,
        limits: Limits | None = None,
    ) -> None:
        self.phase = record.phase
        self.outcome = record.outcome
        self.trace = TraceRelay(confirmed=record.log_offset, crc=record.log_crc)
        self.results = ResultRelay(confirmed=record.result_seq)
        self.problem = ""
        """Why the job was dropped, for the log; empty: it was not, or the drop is no problem."""
        self._epoch = epoch
        self._is_cell = sends_results
        self._sends_results = sends_results
        """False for a server that is no cell, and if the cell refuses further results."""
        self._reasons = accepted_reasons
        self._jitter = jitter
        self._limits = limits or Limits()
        self._since = now  # when this process got the job, or when it ended
        self._interval = DEFAULT_INTERVAL_SECONDS
        self._trace_sent_at: float | None = None
        self._results_sent_at: float | None = None
        self._contact_at = now
        self._corrections = 0  # corrected log offsets in a row
        self._server_failures = 0
        self._server_at = now  # no call to the server before this time
        self._agent_failures = 0
        self._agent_at = now  # no call to the agent before this time
        self._agent_down_since: float | None = None
        self._agent_forgot = False
        self.machine = record.machine
        self._has_place = bool(record.machine) and record.phase is not Phase.RECEIVED
        self.agent_may_have_it = self._has_place
        """True if this or an earlier process may have given the job to the agent. Set before the call."""
        self._agent_is_lost = False
        self._is_cancelling = False
        self._cancel_sent = record.cancel_told
        self._subscribed_at: tuple[int, int] | None = None
        self._empty_subscriptions = 0
        if self.outcome is not None and self.outcome.note:
            self._append_note(self.outcome)

    @property
    def record(self) -> Record:
        return Record(
            phase=Phase.ENDED if self.phase is Phase.OVER and self.outcome else self.phase,
            log_offset=self.trace.confirmed,
            log_crc=self.trace.crc,
            result_seq=self.results.confirmed,
            cancel_told=self._cancel_sent,
            outcome=self.outcome,
            machine=self.machine,
        )

    @property
    def position(self) -> tuple[int, int]:
        """Offset of the next log byte and number of the next step result that are needed from the agent."""
        return self.trace.received, self.results.received

    @property
    def is_overfull(self) -> bool:
        """True if so much log or so many results wait for the server that the agent should pause sending."""
        return max(self.trace.bytes_waiting, self.results.bytes_waiting) > HIGH_BYTES

    def next_action(self, now: float) -> Action:
        match self.phase:
            case Phase.RECEIVED | Phase.FOUND:
                return Acknowledge() if now >= self._server_at else Wait(self._server_at)
            case Phase.ON_HOLD if (seconds := self.hold_seconds(now)) > 0:
                return Wait(now + seconds)
            case Phase.ON_HOLD:
                self._drop("")
                return self.next_action(now)
            case Phase.OVER:
                if not self._has_place:
                    return Forget()
                if now < self._agent_at:
                    return Wait(self._agent_at)
                return Close(tells_agent=not self._agent_is_lost)
            case Phase.ACKNOWLEDGED:
                if now >= self._agent_at:
                    return Start() if self.machine else Acquire()
                return self._call_server(now, [self._agent_at])
            case Phase.STARTED | Phase.ENDED:
                return self._relay(now)

    def hold_seconds(self, now: float) -> float:
        """Return the seconds for which the failed job is still kept for debugging (on hold); 0 if it is not."""
        outcome = None if self._agent_is_lost else self.outcome
        return max(outcome.held_until - self._epoch - now, 0.0) if outcome else 0.0

    def release_hold(self) -> None:
        """Do not keep the failed job for debugging (on hold) any more, or not at all if that has not begun yet."""
        if self.outcome is not None:
            self.outcome = msgspec.structs.replace(self.outcome, held_until=0.0)

    def call_soon(self) -> None:
        """Make the next keep-alive (a call that tells the server that the job is alive) due now."""
        self._contact_at = float("-inf")

    def keep_alive_action(self, now: float) -> KeepAlive | Wait:
        """Return a keep-alive (a call that tells the server that the job is alive) if one is due, else a wait until
        then. Used while a machine is acquired or prepared, which may take long."""
        due = max(self._contact_at + self._limits.keep_alive, self._server_at)
        return KeepAlive(self.trace.confirmed, _checksum(self.trace.crc)) if now >= due else Wait(due)

    def _relay(self, now: float) -> Action:
        deadlines = []
        if self._is_cancelling and not self._cancel_sent and self.phase is Phase.STARTED:
            if now >= self._agent_at:
                return CancelSteps()
            deadlines.append(self._agent_at)
        if self._subscribed_at is None and self._needs_more() and self._has_room():
            return Subscribe()
        return self._call_server(now, deadlines)

    def _call_server(self, now: float, deadlines: list[float]) -> Action:
        if now < self._server_at:
            return Wait(min([*deadlines, self._server_at]))
        if self._sends_results and (results := self.results.head()):
            due = self._results_due(now)
            if now >= due:
                return SendResults(self.results.confirmed, tuple(results))
            deadlines.append(due)
        if self.trace.bytes_waiting:
            due = self._trace_due(now)
            if now >= due:
                return SendTrace(self.trace.confirmed, self.trace.head())
            deadlines.append(due)
        elif self.phase is Phase.ENDED and not self._needs_more():
            return self._final()
        alive = self._contact_at + self._limits.keep_alive
        if now >= alive:
            return KeepAlive(self.trace.confirmed, _checksum(self.trace.crc))
        return Wait(min([*deadlines, alive]))

    def _trace_due(self, now: float) -> float:
        """Return when to send waiting log bytes: a full chunk and the end of the log at once, the first bytes not
        before the job is `Limits.gathering` seconds old, others at the interval that the server asked for."""
        if self.phase is Phase.ENDED or self.trace.bytes_waiting >= CHUNK_BYTES:
            return now
        if self._trace_sent_at is None:
            return self._since + self._limits.gathering
        return self._trace_sent_at + self._interval

    def _results_due(self, now: float) -> float:
        """Return when to send waiting step results. The rule of `_trace_due`, but with the interval RESULTS_SECONDS."""
        if self.phase is Phase.ENDED or self.results.bytes_waiting >= CHUNK_BYTES:
            return now
        if self._results_sent_at is None:
            return self._since + self._limits.gathering
        return self._results_sent_at + RESULTS_SECONDS

    def _needs_more(self) -> bool:
        if self.outcome is None:
            return True
        if self._agent_forgot:
            return False
        missing_results = self._sends_results and self.results.received <= self.outcome.results
        return self.trace.received < self.outcome.log_bytes or missing_results

    def _has_room(self) -> bool:
        return max(self.trace.bytes_waiting, self.results.bytes_waiting) < CHUNK_BYTES

    def _final(self) -> SendFinal:
        assert self.outcome is not None
        outcome = self.outcome
        return SendFinal(
            state=outcome.state,
            failure_reason=accepted_reason(outcome.reason, self._reasons) if outcome.state == "failed" else None,
            exit_code=outcome.exit_code,
            bytesize=outcome.log_bytes if outcome.checksum else self.trace.confirmed,
            checksum=outcome.checksum or _checksum(self.trace.crc),
            may_have_begun=outcome.may_have_begun and self._is_cell,
            message=_explanation(outcome) if self._is_cell else "",
        )

    # Events of the agent.

    def on_log(self, offset: int, data: bytes, *, is_first: bool = False) -> None:
        """Add log bytes from the agent. `is_first`: the agent has deleted all bytes before `offset`."""
        self.trace.add(offset, data, is_first=is_first)

    def on_result(self, seq: int, document: bytes) -> None:
        self.results.add(seq, document)
        if not self._sends_results:
            self.results.drop()

    def on_ended(self, outcome: Outcome, now: float) -> None:
        """Record the job's end. The agent sends this event after all log and results. If some are still missing, they
        are requested again; after several attempts without new data the job ends without them."""
        if self.phase is Phase.STARTED:
            self.phase, self.outcome, self._since = Phase.ENDED, outcome, now
        # The event may be older than the last subscription; only repeated empty ones mean that nothing is left.
        self._empty_subscriptions = self._empty_subscriptions + 1 if self._subscribed_at == self.position else 0
        self._subscribed_at = None
        if self._empty_subscriptions > _EMPTY_SUBSCRIPTIONS and self._needs_more():
            self._agent_forgot = True

    def on_unknown_job(self, now: float) -> None:
        self._subscribed_at = None
        self._agent_forgot = True
        self.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "the agent lost the job: its files are gone", now)

    def on_agent_back(self) -> None:
        self._agent_failures, self._agent_down_since, self._agent_at = 0, None, 0.0

    def on_agent_failed(self, cause: str, now: float) -> None:
        """Record that a call to the agent failed. After `Limits.agent` seconds of failures an unfinished job fails; one
        that is over is cleaned up without the agent, or its folders stay if that fails as long, too."""
        self._agent_failures += 1
        self._agent_at = now + _BACKOFF.delay(self._agent_failures, jitter=self._jitter)
        if self._agent_down_since is None:
            self._agent_down_since = now
        down_seconds = now - self._agent_down_since
        if down_seconds < self._limits.agent:
            return
        self._agent_forgot = True
        if self.phase is Phase.OVER and self._agent_is_lost:
            self._has_place = False  # its folders cannot be cleaned up either
        elif self.phase is Phase.OVER:
            self._agent_is_lost, self._agent_down_since = True, now
        else:
            text = f"the agent could not be reached for {down_seconds / 60:.0f} minutes: {cause}"
            self.fail(FailureReason.RUNNER_SYSTEM_FAILURE, text, now)

    def on_machine_lost(self, cause: str, now: float) -> None:
        self._agent_is_lost = self._agent_forgot = True
        self._subscribed_at, self._agent_at = None, now
        self.fail(FailureReason.RUNNER_SYSTEM_FAILURE, cause, now)

    def on_unsubscribed(self) -> None:
        self._subscribed_at = None

    # Results of actions.

    def on_subscribed(self) -> None:
        self._subscribed_at = self.position

    def on_placed(self, machine: str) -> None:
        self.machine, self._has_place = machine, True

    def on_started(self) -> None:
        self.phase = Phase.STARTED
        self.on_agent_back()

    def on_cancel_sent(self) -> None:
        self._cancel_sent = True

    def on_closed(self) -> None:
        self._has_place = False

    def fail(self, reason: FailureReason, message: str, now: float) -> None:
        """End the job as failed, and append a line with `message` to its log. Without effect if the job has ended."""
        if self.outcome is not None or self.phase is Phase.OVER:
            return
        kind = " (system failure)" if reason is FailureReason.RUNNER_SYSTEM_FAILURE else ""
        note = f"{stamp(self._epoch + now)} 00O ERROR: Job failed{kind}: {' '.join(message.split())}\n"
        end = max(self.trace.received, self.trace.confirmed) + len(note.encode())
        self.outcome = Outcome(
            state="failed",
            reason=reason,
            message=message,
            log_bytes=end,
            note=note,
            may_have_begun=self.agent_may_have_it,
        )
        self.phase, self._since = Phase.ENDED, now
        self._append_note(self.outcome)

    def _append_note(self, outcome: Outcome) -> None:
        """Append the manager's error line (`Outcome.note`) to the log, except the part that the server already has."""
        self._agent_forgot = True
        note = outcome.note.encode()
        place = max(self.trace.received, self.trace.confirmed)
        self.trace.received = place
        sent = min(max(place - (outcome.log_bytes - len(note)), 0), len(note))
        self.trace.add(place, note[sent:])

    # Answers of the server.

    def on_no_answer(self, now: float, cause: str) -> None:
        """Record that a call to the server had no usable answer; it is repeated, and a running job goes on. A job that
        is not confirmed or has ended is given up after `Limits.acknowledge` or `Limits.ending` seconds."""
        self._server_failures += 1
        self._server_at = now + _BACKOFF.delay(self._server_failures, jitter=self._jitter)
        endings = {Phase.FOUND: self._limits.ending, Phase.ENDED: self._limits.ending}
        limit = (endings | {Phase.RECEIVED: self._limits.acknowledge}).get(self.phase)
        if limit is not None and now - self._since >= limit:
            self._drop(f"given up after {limit / 3600:.0f} h without a usable answer from the server: {cause}")

    def on_reply(self, call: Call, reply: JobReply, now: float) -> None:
        if reply.interval_seconds:
            self._interval = reply.interval_seconds
        is_lost = reply.status == 403 or (reply.status == 404 and not isinstance(call, SendTrace | SendResults))
        if reply.job_status in ("canceled", "failed") or is_lost:
            problem = f"the server answered {reply.status} {reply.job_status}".strip()
            self._drop("" if isinstance(call, SendFinal) else problem)
            if reply.job_status == "failed":  # the final state of an earlier call, perhaps of an earlier process
                self._finish(now)
            return
        if reply.job_status == "canceling":
            self._is_cancelling = True
            if self.phase in (Phase.RECEIVED, Phase.ACKNOWLEDGED):
                self.fail(FailureReason.JOB_CANCELED, "canceled before it started", now)
        if not self._apply_reply(call, reply, now):
            self.on_no_answer(now, f"status {reply.status}")
            return
        self._server_failures = 0
        self._contact_at = now

    def _apply_reply(self, call: Call, reply: JobReply, now: float) -> bool:
        """Update the state from the server's reply to `call`. Returns False if the call must be repeated later."""
        match call:
            case Acknowledge():
                return self._apply_acknowledged(reply.status)
            case KeepAlive():
                return reply.status in (200, 202)
            case SendTrace():
                return self._apply_trace_reply(call, reply, now)
            case SendResults():
                return self._apply_results_reply(call, reply, now)
            case SendFinal():
                return self._apply_final_reply(reply.status, now)

    def _apply_acknowledged(self, status: int) -> bool:
        if status != 200 and (self._sends_results or status not in GITLAB_ACKNOWLEDGED):
            return False
        if self.phase is Phase.RECEIVED:
            self.phase, self._has_place = Phase.ACKNOWLEDGED, bool(self.machine)
        elif self.phase is Phase.FOUND:
            self.phase = Phase.STARTED
        return True

    def _apply_trace_reply(self, call: SendTrace, reply: JobReply, now: float) -> bool:
        match reply.status:
            case 200 | 201 | 202 | 204:
                self.trace.server_has(call.start + len(call.data))
                self._trace_sent_at = now
                self._corrections = 0
                return True
            case 416:
                # The first correction is followed at once; repeated ones with growing pauses.
                self._rewind_trace(reply.size or 0)
                self._corrections += 1
                return self._corrections == 1 and (reply.size or 0) != call.start
            case 413:
                self.trace.halve(len(call.data))
                return False
            case 404 if self.phase is Phase.ENDED:
                self._agent_forgot = True
                self.trace.server_has(self.trace.received)
                return True
        return False

    def _apply_results_reply(self, call: SendResults, reply: JobReply, now: float) -> bool:
        if reply.status in (400, 404, 405, 413, 422):
            self._sends_results = False
            self.results.drop()
            return True
        if reply.status not in (200, 201, 202, 204, 409):
            return False
        next_seq = reply.next_seq
        if next_seq is None:
            if reply.status == 409:
                return False
            next_seq = call.first_seq + len(call.results)
        before = self.results.received
        self.results.server_wants(next_seq)
        # Results that the server did not take are sent again at once.
        self._results_sent_at = None if reply.status == 409 else now
        if self.results.received < before:
            self._subscribed_at = None
        return next_seq != call.first_seq

    def _apply_final_reply(self, status: int, now: float) -> bool:
        if status == 200:
            self._finish(now)
            return True
        if status not in (202, 412):
            return False
        if status == 412:
            self._rewind_trace(0)
        self._server_at = now + self._interval
        if now - self._since >= self._limits.ending:
            self._drop(f"given up: the server still answers {status}")
        return True

    def _rewind_trace(self, size: int) -> None:
        """Send the log again from `size` on, as the server has only that much. The agent is asked for missing bytes."""
        outcome = self.outcome
        if outcome is not None and outcome.note:
            note = outcome.note.encode()
            if size != outcome.log_bytes and not self.trace.confirmed <= size <= outcome.log_bytes - len(note):
                self.outcome = msgspec.structs.replace(outcome, log_bytes=size + len(note))
                self.trace = TraceRelay(confirmed=size, crc=None)
                self.trace.add(size, note)
                return
        before = self.trace.received
        self.trace.server_has(size)
        if self.trace.received < before:
            self._subscribed_at = None

    def _finish(self, now: float) -> None:
        self.phase = Phase.ON_HOLD if self.hold_seconds(now) else Phase.OVER

    def _drop(self, problem: str) -> None:
        """End the job without further calls to the server. `problem` is the cause, logged as a warning unless empty."""
        self.phase = Phase.OVER
        self.problem = problem


def _checksum(crc: int | None) -> str | None:
    return None if crc is None else f"crc32:{crc:08x}"


def _explanation(outcome: Outcome) -> str:
    """Return the message of an outcome on one line; empty if the reason and the exit code of the failure say all."""
    has_code = outcome.reason == FailureReason.SCRIPT_FAILURE and outcome.exit_code
    is_plain = outcome.state != "failed" or outcome.reason in _PLAIN_REASONS or has_code
    return "" if is_plain else " ".join(outcome.message.split())


def accepted_reason(reason: str, listed: Collection[str]) -> str:
    """Return `reason` if every server knows it or the server lists it (`listed`), else a general reason."""
    if reason in listed or reason in ALWAYS_ACCEPTED:
        return reason
    return _FALLBACK_REASONS.get(reason, FailureReason.UNKNOWN_FAILURE)
