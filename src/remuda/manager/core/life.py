"""The life of one job in the manager: what to do next, given everything heard so far.

`Life` is told what happened (an answer of the server, an event of the agent, a failed call) and says what to do next,
one action at a time; it awaits nothing and knows no clock. `remuda.manager.jobs.job` performs the actions. What must
survive the process is its `record`: the shell stores it before it asks for the next action, so a new process that
makes a `Life` of a stored record goes on where the old one died.

    received --PUT running: 200--> acknowledged --agent took it--> started --it ended--> ended --PUT final--> over
    found --PUT running: 200--> started   ended --PUT final, it is to be held--> held --let go, or time is up--> over

Invariants: nothing is started before the server confirmed; a job has a machine, and that is stored, before anything
happens there; the agent is told to forget a job only when the server has its final state or does not want it any more,
and then its place is cleaned up, also where no agent is left; every wait has an end.
"""

from collections.abc import Collection

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
from remuda.manager.core.failure import accepted_reason
from remuda.manager.core.limits import Limits
from remuda.manager.core.record import Outcome, Phase, Record
from remuda.manager.core.relay import CHUNK_BYTES, HIGH_BYTES, ResultRelay, TraceRelay
from remuda.model.job import FailureReason
from remuda.wire.runner_client import JobReply

DEFAULT_INTERVAL_SECONDS = 3.0
ANSWERS = (202, 400, 409)
"""To the first PUT running, besides 200: GitLab has given the job to us by then, whatever it thinks of the message. A
Remuda cell says 200, and nothing else lets a job of its start."""
RESULTS_SECONDS = 0.2
"""Between two calls with step results."""
_FRUITLESS_READINGS = 3
_BACKOFF = Backoff(first_seconds=0.2, ceiling_seconds=30.0)


class Life:
    """One job. All times are seconds of the same monotonic clock; `epoch` turns them into wall time."""

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
        """Why the job was given up, for the log; empty while all is well."""
        self._epoch = epoch
        self._sends_results = sends_results
        self._reasons = accepted_reasons
        self._jitter = jitter
        self._limits = limits or Limits()
        self._since = now  # when this process took the job up, or when it ended
        self._interval = DEFAULT_INTERVAL_SECONDS
        self._trace_sent_at: float | None = None
        self._results_sent_at: float | None = None
        self._contact_at = now
        self._corrections = 0  # times in a row that the server stood elsewhere
        self._server_failures = 0
        self._server_at = now  # no call to the server before
        self._agent_failures = 0
        self._agent_at = now  # no call to the agent before
        self._agent_down_since: float | None = None
        self._agent_forgot = False
        self.machine = record.machine
        self._has_place = bool(record.machine) and record.phase is not Phase.RECEIVED
        self.agent_may_have_it = self._has_place
        """Set before the agent is asked to start it; a process that died may have asked."""
        self._agent_is_lost = False
        self._cancel_wanted = False
        self._cancel_told = record.cancel_told
        self._subscribed_at: tuple[int, int] | None = None
        self._fruitless = 0
        if self.outcome is not None and self.outcome.note:
            self._put_note(self.outcome)

    @property
    def record(self) -> Record:
        """What to store now."""
        return Record(
            phase=Phase.ENDED if self.phase is Phase.OVER and self.outcome else self.phase,
            log_offset=self.trace.confirmed,
            log_crc=self.trace.crc,
            result_seq=self.results.confirmed,
            cancel_told=self._cancel_told,
            outcome=self.outcome,
            machine=self.machine,
        )

    @property
    def position(self) -> tuple[int, int]:
        """The next byte and the next result wanted from the agent."""
        return self.trace.received, self.results.received

    @property
    def is_overfull(self) -> bool:
        """Whether so much waits that the agent should pause."""
        return max(self.trace.waiting, self.results.bytes_waiting) > HIGH_BYTES

    def next(self, now: float) -> Action:
        """What to do."""
        match self.phase:
            case Phase.RECEIVED | Phase.FOUND:
                return Acknowledge() if now >= self._server_at else Wait(self._server_at)
            case Phase.HELD if (seconds := self.held_seconds(now)) > 0:
                return Wait(now + seconds)
            case Phase.HELD:
                self._drop("")
                return self.next(now)
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

    def held_seconds(self, now: float) -> float:
        """For how long the environment of a failed job stays."""
        outcome = None if self._agent_is_lost else self.outcome
        return max(outcome.held_until - self._epoch - now, 0.0) if outcome else 0.0

    def release(self) -> None:
        """The job is not held any longer."""
        if self.outcome is not None:
            self.outcome = msgspec.structs.replace(self.outcome, held_until=0.0)

    def call_soon(self) -> None:
        """Make the next sign of life now."""
        self._contact_at = float("-inf")

    def meanwhile(self, now: float) -> KeepAlive | Wait:
        """What to do for the server while something is done for the job that may take long."""
        alive = max(self._contact_at + self._limits.keep_alive, self._server_at)
        return KeepAlive(self.trace.confirmed, _checksum(self.trace.crc)) if now >= alive else Wait(alive)

    def _relay(self, now: float) -> Action:
        deadlines = []
        if self._cancel_wanted and not self._cancel_told and self.phase is Phase.STARTED:
            if now >= self._agent_at:
                return CancelSteps()
            deadlines.append(self._agent_at)
        if self._subscribed_at is None and self._wants_more() and self._has_room():
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
        if self.trace.waiting:
            due = self._trace_due(now)
            if now >= due:
                return SendTrace(self.trace.confirmed, self.trace.head())
            deadlines.append(due)
        elif self.phase is Phase.ENDED and not self._wants_more():
            return self._final()
        alive = self._contact_at + self._limits.keep_alive
        if now >= alive:
            return KeepAlive(self.trace.confirmed, _checksum(self.trace.crc))
        return Wait(min([*deadlines, alive]))

    def _trace_due(self, now: float) -> float:
        """Full chunks and the last bytes go at once, the first ones soon, others at the server's interval."""
        if self.phase is Phase.ENDED or self.trace.waiting >= CHUNK_BYTES:
            return now
        if self._trace_sent_at is None:
            return self._since + self._limits.gathering
        return self._trace_sent_at + self._interval

    def _results_due(self, now: float) -> float:
        """The same for results, whose readers want them sooner; steps of a millisecond must not cost a call each."""
        if self.phase is Phase.ENDED or self.results.bytes_waiting >= CHUNK_BYTES:
            return now
        if self._results_sent_at is None:
            return self._since + self._limits.gathering
        return self._results_sent_at + RESULTS_SECONDS

    def _wants_more(self) -> bool:
        """Whether the agent still has something that we need."""
        if self.outcome is None:
            return True
        if self._agent_forgot:
            return False
        missing_results = self._sends_results and self.results.received <= self.outcome.results
        return self.trace.received < self.outcome.log_bytes or missing_results

    def _has_room(self) -> bool:
        return max(self.trace.waiting, self.results.bytes_waiting) < CHUNK_BYTES

    def _final(self) -> SendFinal:
        assert self.outcome is not None
        outcome = self.outcome
        return SendFinal(
            state=outcome.state,
            failure_reason=accepted_reason(outcome.reason, self._reasons) if outcome.state == "failed" else None,
            exit_code=outcome.exit_code,
            bytesize=outcome.log_bytes if outcome.checksum else self.trace.confirmed,
            checksum=outcome.checksum or _checksum(self.trace.crc),
            may_have_begun=outcome.may_have_begun and self._sends_results,
        )

    # What the agent says.

    def log(self, offset: int, data: bytes, *, is_first: bool = False) -> None:
        """Bytes of the log; `is_first`: the agent keeps none before them."""
        self.trace.add(offset, data, is_first=is_first)

    def result(self, seq: int, document: bytes) -> None:
        """A step's result."""
        self.results.add(seq, document)
        if not self._sends_results:
            self.results.drop()

    def ended(self, outcome: Outcome, now: float) -> None:
        """The job ended; everything of it was sent to us, if it all joined on."""
        if self.phase is Phase.STARTED:
            self.phase, self.outcome, self._since = Phase.ENDED, outcome, now
        # An end may be older than the last subscription; only one that stays fruitless means that there is no more.
        self._fruitless = self._fruitless + 1 if self._subscribed_at == self.position else 0
        self._subscribed_at = None
        if self._fruitless > _FRUITLESS_READINGS and self._wants_more():
            self._agent_forgot = True

    def unknown(self, now: float) -> None:
        """The agent does not know the job."""
        self._subscribed_at = None
        self._agent_forgot = True
        self.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "the agent lost the job: its files are gone", now)

    def agent_is_back(self) -> None:
        """The agent can be reached."""
        self._agent_failures, self._agent_down_since, self._agent_at = 0, None, 0.0

    def agent_failed(self, cause: str, now: float) -> None:
        """A call to the agent did not get through."""
        self._agent_failures += 1
        self._agent_at = now + _BACKOFF.delay(self._agent_failures, jitter=self._jitter)
        if self._agent_down_since is None:
            self._agent_down_since = now
        down_seconds = now - self._agent_down_since
        if down_seconds < self._limits.agent:
            return
        self._agent_forgot = True
        if self.phase is Phase.OVER and self._agent_is_lost:
            self._has_place = False  # not even its place can be cleaned up
        elif self.phase is Phase.OVER:
            self._agent_is_lost, self._agent_down_since = True, now
        else:
            text = f"the agent could not be reached for {down_seconds / 60:.0f} minutes: {cause}"
            self.fail(FailureReason.RUNNER_SYSTEM_FAILURE, text, now)

    def machine_lost(self, cause: str, now: float) -> None:
        """The machine, and the agent with it, is gone for good."""
        self._agent_is_lost = self._agent_forgot = True
        self._subscribed_at, self._agent_at = None, now
        self.fail(FailureReason.RUNNER_SYSTEM_FAILURE, cause, now)

    def unsubscribed(self) -> None:
        """The agent sends nothing more for now."""
        self._subscribed_at = None

    # What became of actions.

    def subscribed(self) -> None:
        """The agent will send from `position` on."""
        self._subscribed_at = self.position

    def placed(self, machine: str) -> None:
        """The job has a machine."""
        self.machine, self._has_place = machine, True

    def started(self) -> None:
        """The agent has the job."""
        self.phase = Phase.STARTED
        self.agent_is_back()

    def cancel_told(self) -> None:
        """The agent knows that the job shall end."""
        self._cancel_told = True

    def closed(self) -> None:
        """The agent forgot the job, and its place is cleaned up."""
        self._has_place = False

    def fail(self, reason: FailureReason, message: str, now: float) -> None:
        """The job cannot go on; the manager says why in the log. Without effect once the outcome is known."""
        if self.outcome is not None or self.phase is Phase.OVER:
            return
        about = " (system failure)" if reason is FailureReason.RUNNER_SYSTEM_FAILURE else ""
        note = f"{stamp(self._epoch + now)} 00O ERROR: Job failed{about}: {' '.join(message.split())}\n"
        end = max(self.trace.received, self.trace.confirmed) + len(note.encode())
        begun = self.agent_may_have_it
        self.outcome = Outcome(
            state="failed", reason=reason, message=message, log_bytes=end, note=note, may_have_begun=begun
        )
        self.phase, self._since = Phase.ENDED, now
        self._put_note(self.outcome)

    def _put_note(self, outcome: Outcome) -> None:
        """The manager's own line stands behind what we have, unless it went out already."""
        self._agent_forgot = True
        note = outcome.note.encode()
        place = max(self.trace.received, self.trace.confirmed)
        self.trace.received = place
        sent = min(max(place - (outcome.log_bytes - len(note)), 0), len(note))
        self.trace.add(place, note[sent:])

    def unreachable(self, now: float, cause: str) -> None:
        """A call to the server did not get through."""
        self._server_failures += 1
        self._server_at = now + _BACKOFF.delay(self._server_failures, jitter=self._jitter)
        endings = {Phase.FOUND: self._limits.ending, Phase.ENDED: self._limits.ending}
        limit = (endings | {Phase.RECEIVED: self._limits.acknowledge}).get(self.phase)
        if limit is not None and now - self._since >= limit:
            self._drop(f"given up after {limit / 3600:.0f} h without an answer that counts: {cause}")

    def replied(self, call: Call, reply: JobReply, now: float) -> None:
        """The server answered a call."""
        if reply.interval_seconds:
            self._interval = reply.interval_seconds
        lost = reply.status == 403 or (reply.status == 404 and not isinstance(call, SendTrace | SendResults))
        if reply.job_status in ("canceled", "failed") or lost:
            problem = f"the server says {reply.status} {reply.job_status}".strip()
            self._drop("" if isinstance(call, SendFinal) else problem)
            if reply.job_status == "failed":  # as we have told it, perhaps in an earlier process
                self._rest(now)
            return
        if reply.job_status == "canceling":
            self._cancel_wanted = True
            if self.phase in (Phase.RECEIVED, Phase.ACKNOWLEDGED):
                self.fail(FailureReason.JOB_CANCELED, "canceled before it started", now)
        if not self._understood(call, reply, now):
            self.unreachable(now, f"status {reply.status}")
            return
        self._server_failures = 0
        self._contact_at = now

    def _understood(self, call: Call, reply: JobReply, now: float) -> bool:
        """Act on an answer; False when it is none that helps, so that the call is made again later."""
        match call, reply.status:
            case Acknowledge(), status if status == 200 or (status in ANSWERS and not self._sends_results):
                if self.phase is Phase.RECEIVED:
                    self.phase, self._has_place = Phase.ACKNOWLEDGED, bool(self.machine)
                elif self.phase is Phase.FOUND:
                    self.phase = Phase.STARTED
            case KeepAlive(), 200 | 202:
                pass
            case SendTrace(), 200 | 201 | 202 | 204:
                self.trace.server_has(call.start + len(call.data))
                self._trace_sent_at = now
                self._corrections = 0
            case SendTrace(), 416:
                # Once is a correction; a server that repeats itself is asked again with growing waits.
                self._rewind_trace(reply.size or 0)
                self._corrections += 1
                return self._corrections == 1 and (reply.size or 0) != call.start
            case SendTrace(), 413:
                self.trace.halve(len(call.data))
                return False
            case SendTrace(), 404 if self.phase is Phase.ENDED:
                self._agent_forgot = True
                self.trace.server_has(self.trace.received)
            case SendResults(), 200 | 201 | 202 | 204 | 409:
                wanted = reply.next_seq
                if wanted is None:
                    if reply.status == 409:
                        return False
                    wanted = call.first_seq + len(call.results)
                before = self.results.received
                self.results.server_wants(wanted)
                # What it did not take of these goes again at once.
                self._results_sent_at = None if reply.status == 409 else now
                if self.results.received < before:
                    self._subscribed_at = None
                return wanted != call.first_seq
            case SendResults(), 400 | 404 | 405 | 413 | 422:
                self._sends_results = False
                self.results.drop()
            case SendFinal(), 200:
                self._rest(now)
            case SendFinal(), 202 | 412:
                if reply.status == 412:
                    self._rewind_trace(0)
                self._server_at = now + self._interval
                if now - self._since >= self._limits.ending:
                    self._drop(f"given up: the server still answers {reply.status}")
            case _:
                return False
        return True

    def _rewind_trace(self, size: int) -> None:
        """The server has `size` bytes: of the agent's log, which can be read again, or of our own line behind it."""
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

    def _rest(self, now: float) -> None:
        """The server has everything."""
        self.phase = Phase.HELD if self.held_seconds(now) else Phase.OVER

    def _drop(self, problem: str) -> None:
        """The server needs nothing more."""
        self.phase = Phase.OVER
        self.problem = problem


def _checksum(crc: int | None) -> str | None:
    return None if crc is None else f"crc32:{crc:08x}"
