"""The life of a job: each test feeds events and answers into `Life` and checks the next action of the manager."""

import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from remuda.manager.core.life import RESULTS_SECONDS, Life
from remuda.manager.core.limits import Limits
from remuda.manager.core.record import Outcome, Phase, Record
from remuda.manager.core.relay import CHUNK_BYTES, HIGH_BYTES
from remuda.model.job import FailureReason
from remuda.wire.runner_client import JobReply

LOG = b"first line\nsecond line\n"
CRC = f"crc32:{zlib.crc32(LOG):08x}"


def a_record(**changes: Any) -> Record:
    """Return the record of a job on the machine `local`."""
    return Record(**{"machine": "local"} | changes)


class JobHarness:
    """A `Life` with its own clock."""

    def __init__(self, record: Record | None = None, **options: Any) -> None:
        self.now = 1000.0
        self.life = Life(record or a_record(), now=self.now, **options)

    def expect(self, expected: Action) -> None:
        assert self.life.next_action(self.now) == expected

    def expect_wait(self, seconds: float) -> None:
        assert self.life.next_action(self.now) == Wait(pytest.approx(self.now + seconds))  # type: ignore[arg-type]

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def reply(self, status: int, job_status: str = "running", **more: Any) -> None:
        """Answer the current call to the server."""
        action = self.life.next_action(self.now)
        assert isinstance(action, Call), action
        self.life.on_reply(action, JobReply(status=status, job_status=job_status, **more), self.now)

    def fail_call(self) -> None:
        self.life.on_no_answer(self.now, "connection refused")


def started_job(**options: Any) -> JobHarness:
    """Return a job that runs at its agent and is subscribed."""
    job = JobHarness(a_record(phase=Phase.STARTED), **options)
    job.expect(Subscribe())
    job.life.on_subscribed()
    return job


def success_outcome(**changes: Any) -> Outcome:
    values: dict[str, Any] = {"state": "success", "log_bytes": len(LOG), "results": 1, "checksum": CRC}
    return Outcome(**values | changes)


def final_update(**changes: Any) -> SendFinal:
    values: dict[str, Any] = {
        "state": "success",
        "failure_reason": None,
        "exit_code": 0,
        "bytesize": len(LOG),
        "checksum": CRC,
    }
    return SendFinal(**values | changes)


def test_a_job_from_its_receipt_to_its_end() -> None:
    job = JobHarness()
    job.expect(Acknowledge())
    job.reply(200)
    assert job.life.record == a_record(phase=Phase.ACKNOWLEDGED)
    job.expect(Start())
    job.life.on_started()
    assert job.life.record == a_record(phase=Phase.STARTED)
    job.expect(Subscribe())
    job.life.on_subscribed()
    job.life.on_log(0, LOG)
    job.life.on_result(1, b'{"seq":1}')
    job.expect(SendResults(1, (b'{"seq":1}',)))
    job.reply(200, next_seq=2)
    job.expect(SendTrace(0, LOG))
    job.reply(202)
    assert job.life.record == a_record(phase=Phase.STARTED, log_offset=len(LOG), log_crc=zlib.crc32(LOG), result_seq=2)
    job.life.on_ended(success_outcome(), job.now)
    job.expect(final_update())
    job.reply(200, "success")
    job.expect(Close())
    job.life.on_closed()
    job.expect(Forget())
    assert job.life.problem == ""


def test_only_an_explicit_confirmation_lets_a_job_start() -> None:
    job = JobHarness()
    for answer in (job.fail_call, lambda: job.reply(400), lambda: job.reply(409), lambda: job.reply(502)):
        answer()
        assert isinstance(job.life.next_action(job.now), Wait)
        job.advance(60)
        job.expect(Acknowledge())
    job.reply(200)
    job.expect(Start())


@pytest.mark.parametrize("status", [202, 400, 409])
def test_a_job_of_gitlab_starts_even_if_the_acknowledgement_is_refused(status: int) -> None:
    job = JobHarness(sends_results=False)
    job.reply(status)
    job.expect(Start())


@pytest.mark.parametrize(("status", "job_status"), [(403, ""), (404, ""), (200, "canceled"), (200, "failed")])
def test_a_job_that_the_server_refuses_is_forgotten_at_once(status: int, job_status: str) -> None:
    job = JobHarness()
    job.reply(status, job_status)
    job.expect(Forget())


def test_the_acknowledgement_is_given_up_after_its_limit() -> None:
    job = JobHarness(limits=Limits(acknowledge=100))
    job.fail_call()
    job.advance(101)
    job.fail_call()
    job.expect(Forget())
    assert "given up" in job.life.problem


def test_a_job_that_is_canceling_before_it_started_never_starts() -> None:
    job = JobHarness()
    job.reply(200, "canceling")
    action = job.life.next_action(job.now)
    assert isinstance(action, SendTrace)
    assert action.data.endswith(b" 00O ERROR: Job failed: canceled before it started\n")
    job.reply(202, "canceling")
    action = job.life.next_action(job.now)
    assert isinstance(action, SendFinal)
    assert (action.state, action.failure_reason) == ("failed", "unknown_failure")
    job.reply(200, "canceled")
    job.expect(Forget())


def test_the_first_bytes_are_sent_at_once_and_later_ones_at_the_servers_interval() -> None:
    job = started_job()
    job.life.on_log(0, b"one")
    job.expect(SendTrace(0, b"one"))
    job.reply(202, interval_seconds=5.0)
    job.life.on_log(3, b"two")
    job.expect_wait(5)
    job.advance(5)
    job.expect(SendTrace(3, b"two"))


def test_the_first_output_is_collected_for_some_time_unless_the_job_has_ended() -> None:
    job = started_job(limits=Limits(gathering=5))
    job.life.on_log(0, LOG)
    job.life.on_result(1, b"{}")
    job.expect(Wait(job.now + 5))
    job.advance(5)
    job.expect(SendResults(1, (b"{}",)))
    job.reply(200, next_seq=2)
    job.expect(SendTrace(0, LOG))
    job.reply(202)
    job.life.on_result(2, b"{}")
    assert isinstance(job.life.next_action(job.now), Wait)
    job.life.on_ended(success_outcome(results=2), job.now)
    job.expect(SendResults(2, (b"{}",)))


def test_a_full_chunk_and_the_last_bytes_do_not_wait() -> None:
    job = started_job()
    job.life.on_log(0, b"one")
    job.reply(202, interval_seconds=60.0)
    job.life.on_log(3, b"x" * CHUNK_BYTES)
    job.expect(SendTrace(3, b"x" * CHUNK_BYTES))
    job.reply(202)
    end = 3 + CHUNK_BYTES
    job.life.on_log(end, b"last")
    job.life.on_ended(success_outcome(log_bytes=end + 4, results=0), job.now)
    job.expect(SendTrace(end, b"last"))


def test_a_full_relay_unsubscribes_and_subscribes_again_when_there_is_room() -> None:
    job = started_job()
    job.life.on_log(0, b"x" * (HIGH_BYTES + 1))
    assert job.life.is_overfull
    job.life.on_unsubscribed()
    for _ in range(2):
        assert isinstance(job.life.next_action(job.now), SendTrace)
        job.reply(202)
    job.expect(Subscribe())
    assert job.life.position == (HIGH_BYTES + 1, 1)


def test_continue_at_server_position() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.reply(416, size=6)
    job.expect(SendTrace(6, LOG[6:]))


def test_a_server_that_lost_bytes_gets_them_from_the_agent_again() -> None:
    job = JobHarness(a_record(phase=Phase.STARTED, log_offset=6, log_crc=zlib.crc32(LOG[:6])))
    job.life.on_subscribed()
    job.life.on_log(6, LOG[6:])
    job.reply(416, size=None)
    job.expect(Subscribe())
    assert job.life.position == (0, 1)


def test_calls_wait_if_the_server_repeats_its_position() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.reply(416, size=None)
    assert isinstance(job.life.next_action(job.now), Wait)
    confused = started_job()
    confused.life.on_log(0, LOG)
    confused.reply(416, size=6)
    assert isinstance(confused.life.next_action(confused.now), SendTrace)
    confused.reply(416, size=8)
    assert isinstance(confused.life.next_action(confused.now), Wait)


def test_keep_alives_have_size_and_checksum() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.reply(202)
    job.expect_wait(30)
    job.advance(30)
    job.expect(KeepAlive(len(LOG), CRC))
    job.reply(200)
    job.expect_wait(30)


def test_waits_grow_while_the_server_is_unreachable_and_nothing_is_lost() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    waits = []
    for _ in range(12):
        job.fail_call()
        action = job.life.next_action(job.now)
        assert isinstance(action, Wait)
        waits.append(action.until - job.now)
        job.now = action.until
    assert waits == sorted(waits)
    assert waits[-1] == 30
    job.expect(SendTrace(0, LOG))


def test_canceling_tells_the_agent_once_even_across_processes() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.reply(202, "canceling")
    job.expect(CancelSteps())
    job.life.on_cancel_sent()
    job.expect_wait(30)
    restarted = JobHarness(job.life.record)
    restarted.life.on_subscribed()
    restarted.advance(30)
    restarted.reply(200, "canceling")
    restarted.expect_wait(30)


@pytest.mark.parametrize(("status", "job_status"), [(403, ""), (202, "canceled"), (202, "failed")])
def test_an_aborted_job_is_closed_at_once(status: int, job_status: str) -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.reply(status, job_status)
    job.expect(Close())
    assert job.life.record.phase is Phase.OVER


def test_the_final_state_is_sent_until_the_server_accepts_it() -> None:
    job = JobHarness(a_record(phase=Phase.ENDED, log_offset=len(LOG), result_seq=2, outcome=success_outcome()))
    job.expect(final_update())
    job.reply(202, interval_seconds=7.0)
    job.expect_wait(7)
    job.advance(7)
    job.reply(500)
    job.advance(60)
    job.reply(400)
    job.advance(60)
    job.expect(final_update())
    job.reply(200, "success")
    job.expect(Close())


def test_a_bad_checksum_sends_the_whole_log_again() -> None:
    job = JobHarness(a_record(phase=Phase.ENDED, log_offset=len(LOG), result_seq=2, outcome=success_outcome()))
    job.reply(412)
    job.expect(Subscribe())
    assert job.life.position == (0, 2)
    job.life.on_subscribed()
    job.life.on_log(0, LOG)
    job.life.on_ended(success_outcome(), job.now)
    job.advance(3)
    job.expect(SendTrace(0, LOG))
    job.reply(202)
    job.expect(final_update())


def test_the_final_state_is_given_up_after_its_limit() -> None:
    job = JobHarness(
        a_record(phase=Phase.ENDED, log_offset=len(LOG), result_seq=2, outcome=success_outcome()),
        limits=Limits(ending=100),
    )
    job.fail_call()
    job.advance(100)
    job.fail_call()
    job.expect(Close())
    assert "given up" in job.life.problem


def test_the_failure_reason_is_one_that_the_server_accepts() -> None:
    outcome = success_outcome(state="failed", reason="job_canceled", exit_code=3, results=0)
    record = a_record(phase=Phase.ENDED, log_offset=len(LOG), outcome=outcome)
    JobHarness(record).expect(final_update(state="failed", failure_reason="unknown_failure", exit_code=3))
    JobHarness(record, accepted_reasons=["job_canceled"]).expect(
        final_update(state="failed", failure_reason="job_canceled", exit_code=3)
    )


def test_a_job_that_the_agent_lost_fails_with_the_cause_at_the_end_of_its_log() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.life.on_unknown_job(job.now)
    action = job.life.next_action(job.now)
    assert isinstance(action, SendTrace)
    assert action.data.startswith(LOG)
    assert b"ERROR: Job failed (system failure): the agent lost the job" in action.data
    job.reply(202)
    action = job.life.next_action(job.now)
    assert isinstance(action, SendFinal)
    assert (action.state, action.failure_reason) == ("failed", "runner_system_failure")


def test_the_managers_own_line_is_sent_once_across_processes() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.life.on_unknown_job(job.now)
    before = JobHarness(job.life.record)
    first = before.life.next_action(before.now)
    assert isinstance(first, SendTrace)
    assert first.start == 0  # unsent output is lost with the process, but not this line
    assert b"the agent lost the job" in first.data
    job.reply(202)
    after = JobHarness(job.life.record)
    assert isinstance(after.life.next_action(after.now), SendFinal)


def test_the_managers_own_line_never_overwrites_what_the_server_has() -> None:
    """The process died before the answer to sent bytes was stored; then the agent lost the job."""
    job = JobHarness(a_record(phase=Phase.STARTED))
    job.life.on_unknown_job(job.now)
    first = job.life.next_action(job.now)
    assert isinstance(first, SendTrace)
    job.reply(416, size=11)
    job.expect(SendTrace(11, first.data))
    restarted = JobHarness(job.life.record)
    restarted.expect(SendTrace(11, first.data))
    restarted.reply(416, size=11 + len(first.data))  # it had already arrived
    assert isinstance(restarted.life.next_action(restarted.now), SendFinal)


def test_a_job_fails_if_its_agent_is_unreachable_longer_than_the_limit() -> None:
    job = started_job(limits=Limits(agent=100))
    job.life.on_agent_failed("no such file", job.now)
    job.advance(99)
    job.life.on_agent_failed("no such file", job.now)
    assert job.life.phase is Phase.STARTED
    job.advance(2)
    job.life.on_agent_failed("no such file", job.now)
    assert job.life.outcome is not None
    assert "no such file" in job.life.outcome.message


def test_a_job_continues_if_its_agent_returns_within_the_limit() -> None:
    job = started_job(limits=Limits(agent=100))
    job.life.on_agent_failed("refused", job.now)
    job.advance(99)
    job.life.on_agent_back()
    job.advance(99)
    job.life.on_agent_failed("refused", job.now)
    assert job.life.phase is Phase.STARTED


def test_keep_alives_are_sent_while_a_failed_start_is_retried() -> None:
    job = JobHarness(a_record(phase=Phase.ACKNOWLEDGED))
    for _ in range(9):
        job.life.on_agent_failed("refused", job.now)
    job.advance(30)
    job.life.on_agent_failed("refused", job.now)
    job.expect(KeepAlive(0, "crc32:00000000"))
    job.reply(200)
    job.expect_wait(30)
    job.advance(30)
    job.expect(Start())


def test_a_server_without_results_endpoint_gets_none() -> None:
    job = started_job()
    job.life.on_result(1, b"{}")
    job.reply(404, "")
    job.expect_wait(30)
    job.life.on_ended(success_outcome(log_bytes=0, checksum="crc32:00000000"), job.now)
    assert isinstance(job.life.next_action(job.now), SendFinal)


def test_results_continue_at_the_next_number_of_the_server() -> None:
    job = started_job()
    for seq in (1, 2, 3):
        job.life.on_result(seq, b"%d" % seq)
    job.reply(409, next_seq=3)
    job.expect(SendResults(3, (b"3",)))
    job.reply(409, next_seq=2)
    job.expect(Subscribe())
    assert job.life.position == (0, 2)


def test_results_of_short_steps_are_sent_together() -> None:
    job = started_job()
    job.life.on_result(1, b"1")
    job.expect(SendResults(1, (b"1",)))
    job.reply(200)
    job.life.on_result(2, b"2")
    job.expect_wait(RESULTS_SECONDS)
    job.advance(RESULTS_SECONDS / 2)
    job.life.on_result(3, b"3")
    job.expect_wait(RESULTS_SECONDS / 2)
    job.advance(RESULTS_SECONDS / 2)
    job.expect(SendResults(2, (b"2", b"3")))
    job.reply(200)
    job.life.on_result(4, b"4")
    job.life.on_ended(success_outcome(log_bytes=0, results=4), job.now)
    job.expect(SendResults(4, (b"4",)))


def test_missing_bytes_at_the_end_are_read_again_a_few_times() -> None:
    job = started_job()
    job.life.on_log(0, LOG[:4])
    job.life.on_ended(success_outcome(results=0), job.now)
    for _ in range(4):
        job.expect(Subscribe())
        job.life.on_subscribed()
        job.life.on_ended(success_outcome(results=0), job.now)
    job.expect(SendTrace(0, LOG[:4]))
    job.reply(202)
    job.expect(final_update())


def test_an_end_from_before_the_subscription_loses_no_output() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.reply(202)
    job.life.on_log(len(LOG), b"more")
    job.advance(3)
    job.reply(416, size=6)
    job.expect(Subscribe())
    job.life.on_subscribed()
    job.life.on_ended(success_outcome(log_bytes=len(LOG) + 4, results=0), job.now)
    job.expect(Subscribe())
    job.life.on_subscribed()
    job.life.on_log(6, LOG[6:] + b"more")
    job.expect(SendTrace(6, LOG[6:] + b"more"))


def test_an_unknown_trace_at_the_end_does_not_block_the_final_state() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.life.on_ended(success_outcome(results=0), job.now)
    job.reply(404, "")
    job.expect(final_update())


def test_closing_a_job_is_given_up_if_the_agent_is_unreachable() -> None:
    job = JobHarness(a_record(phase=Phase.OVER), limits=Limits(agent=100))
    job.expect(Close())
    for following in (Close(tells_agent=False), Forget()):
        job.life.on_agent_failed("refused", job.now)
        job.advance(100)
        job.life.on_agent_failed("refused", job.now)
        job.advance(30)
        job.expect(following)


def test_a_job_gets_a_machine_before_it_starts() -> None:
    job = JobHarness(Record())
    job.expect(Acknowledge())
    job.reply(200)
    job.expect(Acquire())
    assert job.life.keep_alive_action(job.now) == Wait(job.now + 30)
    job.advance(30)
    assert job.life.keep_alive_action(job.now) == KeepAlive(0, "crc32:00000000")
    job.life.on_placed("one")
    assert job.life.record == Record(phase=Phase.ACKNOWLEDGED, machine="one")
    job.expect(Start())


def test_a_job_without_a_machine_is_forgotten_without_a_close() -> None:
    job = JobHarness(Record())
    job.reply(200)
    job.expect(Acquire())
    job.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "no machine for it", job.now)
    job.reply(202)
    job.reply(200)
    job.expect(Forget())


def test_a_recovered_job_continues_at_the_position_of_the_server() -> None:
    job = JobHarness(a_record(phase=Phase.FOUND))
    job.expect(Acknowledge())
    job.fail_call()
    job.advance(30)
    job.reply(200)
    assert job.life.record == a_record(phase=Phase.STARTED)
    job.expect(Subscribe())
    job.life.on_subscribed()
    job.life.on_log(0, LOG[:11])
    job.expect(SendTrace(0, LOG[:11]))
    job.reply(416, size=15)
    job.life.on_log(11, LOG[11:])
    job.life.on_result(1, b"{}")
    job.life.on_ended(success_outcome(), job.now)
    job.expect(SendResults(1, (b"{}",)))
    job.reply(409, next_seq=2)
    job.expect(SendTrace(15, LOG[15:]))
    job.reply(202)
    job.expect(final_update())


@pytest.mark.parametrize(("status", "job_status"), [(403, ""), (404, ""), (200, "failed"), (200, "canceled")])
def test_a_recovered_job_that_the_server_refuses_is_closed(status: int, job_status: str) -> None:
    job = JobHarness(a_record(phase=Phase.FOUND))
    job.reply(status, job_status)
    job.expect(Close())
    job.life.on_closed()
    job.expect(Forget())


def test_a_recovered_job_that_was_canceled_meanwhile() -> None:
    job = JobHarness(a_record(phase=Phase.FOUND))
    job.reply(200, "canceling")
    job.expect(CancelSteps())


def test_a_lost_machine_ends_its_job_with_the_cause_and_is_released() -> None:
    job = started_job()
    job.life.on_log(0, LOG)
    job.life.on_machine_lost("the machine one is lost: reclaimed", job.now)
    job.reply(202)
    action = job.life.next_action(job.now)
    assert isinstance(action, SendFinal)
    assert (action.state, action.failure_reason) == ("failed", "runner_system_failure")
    job.reply(200, "failed")
    job.expect(Close(tells_agent=False))
    job.life.on_closed()
    job.expect(Forget())


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"reason": "runner_configuration_error", "message": "no engine\n answers"}, "no engine answers"),
        ({"reason": "runner_system_failure", "message": "exit status 1", "exit_code": 1}, "exit status 1"),
        ({"reason": "script_failure", "message": "get_sources: no such ref"}, "get_sources: no such ref"),
        ({"reason": "script_failure", "message": "step_script: exit status 3", "exit_code": 3}, ""),
        ({"reason": "job_execution_timeout", "message": "the job took longer than its limit"}, ""),
        ({"reason": "job_canceled", "message": "the job was cancelled"}, ""),
    ],
)
def test_the_end_says_why_the_job_failed_if_reason_and_exit_code_do_not(outcome: dict[str, Any], message: str) -> None:
    record = a_record(phase=Phase.ENDED, outcome=Outcome(**{"state": "failed"} | outcome))
    action = JobHarness(record).life.next_action(1000.0)
    assert isinstance(action, SendFinal)
    assert action.message == message
    action = JobHarness(record, sends_results=False).life.next_action(1000.0)
    assert isinstance(action, SendFinal)
    assert action.message == "", "only a cell takes it"


@pytest.mark.parametrize("was_asked", [False, True])
def test_a_job_on_a_lost_machine_may_have_begun_if_the_agent_was_asked(was_asked: bool) -> None:
    """A process that died after it asked the agent to start the job has left the machine in the record."""
    job = JobHarness(a_record(phase=Phase.ACKNOWLEDGED, machine=""))
    job.life.on_placed("one")
    if was_asked:
        job = JobHarness(job.life.record)
    job.life.on_machine_lost("reclaimed", job.now)
    job.reply(202)
    action = JobHarness(job.life.record).life.next_action(job.now)
    assert isinstance(action, SendFinal)
    assert action.may_have_begun is was_asked


def test_a_machine_that_is_lost_after_the_end_does_not_change_the_outcome() -> None:
    job = JobHarness(
        a_record(
            phase=Phase.ENDED, log_offset=len(LOG), log_crc=zlib.crc32(LOG), result_seq=2, outcome=success_outcome()
        )
    )
    job.life.on_machine_lost("reclaimed", job.now)
    job.expect(final_update())
    job.reply(200, "success")
    job.expect(Close(tells_agent=False))


def test_a_job_of_a_dead_process_continues_from_its_record() -> None:
    JobHarness(a_record(phase=Phase.RECEIVED)).expect(Acknowledge())
    JobHarness(a_record(phase=Phase.ACKNOWLEDGED)).expect(Start())
    job = JobHarness(a_record(phase=Phase.STARTED, log_offset=6, result_seq=4))
    job.expect(Subscribe())
    assert job.life.position == (6, 4)
    unsent = JobHarness(a_record(phase=Phase.ENDED, log_offset=6, result_seq=2, outcome=success_outcome()))
    unsent.expect(Subscribe())
    unsent.life.on_unknown_job(unsent.now)
    unsent.expect(final_update())
    JobHarness(a_record(phase=Phase.OVER)).expect(Close())


def test_failing_twice_keeps_the_first_cause() -> None:
    job = started_job()
    job.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "first", job.now)
    job.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "second", job.now)
    assert job.life.outcome is not None
    assert job.life.outcome.message == "first"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_life_ends_once_server_and_agent_answer(data: st.DataObject) -> None:
    """After any sequence of answers and events, good answers lead to the end. No job starts unconfirmed."""
    limits = Limits(agent=1e9, ending=1e9, acknowledge=1e9)
    job = JobHarness(data.draw(st.sampled_from([Record(), a_record(), a_record(phase=Phase.FOUND)])), limits=limits)
    confirmed = False
    for step in range(200):
        is_calm = step > 60
        action = job.life.next_action(job.now)
        match action:
            case Forget():
                return
            case Wait():
                assert action.until > job.now
                job.now = action.until
            case Acquire():
                assert confirmed
                job.life.on_placed("one")
            case Start():
                assert confirmed
                if is_calm or data.draw(st.booleans()):
                    job.life.on_started()
                else:
                    job.life.on_agent_failed("away", job.now)
            case Subscribe():
                job.life.on_subscribed()
                offset, seq = job.life.position
                job.life.on_log(offset, LOG[offset:])
                if seq == 1:
                    job.life.on_result(1, b"{}")
                if is_calm or data.draw(st.booleans()):
                    job.life.on_ended(success_outcome(), job.now)
            case CancelSteps():
                job.life.on_cancel_sent()
            case Close():
                job.life.on_closed()
            case Acknowledge() | SendTrace() | SendResults() | KeepAlive() | SendFinal():
                good = 202 if isinstance(action, SendTrace) else 200
                status = good if is_calm else data.draw(st.sampled_from([good, 202, 400, 404, 409, 412, 416, 500]))
                job_status = "running" if is_calm else data.draw(st.sampled_from(["running", "", "canceling"]))
                confirmed = confirmed or (isinstance(action, Acknowledge) and status == 200)
                size = None if is_calm else data.draw(st.none() | st.integers(0, len(LOG)))
                job.life.on_reply(action, JobReply(status=status, job_status=job_status, size=size), job.now)
        if is_calm and job.life.phase is Phase.STARTED and isinstance(action, Wait):
            job.life.on_ended(success_outcome(), job.now)
    raise AssertionError("the job never ended")


def test_results_do_not_fill_the_relay_if_the_server_has_no_results_endpoint() -> None:
    job = started_job(sends_results=False)
    for seq in range(1, 10):
        job.life.on_result(seq, b"x" * CHUNK_BYTES)
    assert not job.life.is_overfull
    assert job.life.position == (0, 10)


def test_refused_results_are_dropped() -> None:
    job = started_job()
    for seq in range(1, 4):
        job.life.on_result(seq, b"x" * CHUNK_BYTES)
    assert job.life.is_overfull
    job.reply(413)
    assert not job.life.is_overfull


def job_on_hold(seconds: float = 600) -> JobHarness:
    """Return a failed job on hold. The server has its log and final state."""
    job = started_job(epoch=500_000.0)
    job.life.on_log(0, LOG)
    outcome = success_outcome(state="failed", reason="script_failure", exit_code=1, results=0)
    job.life.on_ended(msgspec.structs.replace(outcome, held_until=500_000.0 + job.now + seconds), job.now)
    job.reply(202)
    job.expect(final_update(state="failed", failure_reason="script_failure", exit_code=1))
    job.reply(200, "failed")
    return job


def test_a_failed_job_is_on_hold_after_the_server_has_its_final_state() -> None:
    job = job_on_hold()
    assert job.life.record.phase is Phase.ON_HOLD
    job.expect_wait(600)
    job.advance(599)
    job.expect_wait(1)
    job.advance(1)
    job.expect(Close())
    job.life.on_closed()
    job.expect(Forget())


def test_a_hold_continues_in_a_new_process() -> None:
    record = job_on_hold().life.record
    job = JobHarness(record, epoch=500_000.0)
    job.expect_wait(600)
    later = JobHarness(record, epoch=500_700.0)
    later.expect(Close())


def test_a_hold_continues_if_its_begin_was_not_stored() -> None:
    """The process died between the server's answer and the write to the journal, so the log is sent again."""
    record = msgspec.structs.replace(job_on_hold().life.record, phase=Phase.ENDED, log_offset=0, log_crc=0)
    job = JobHarness(record, epoch=500_000.0)
    job.life.on_log(0, LOG)
    job.expect(SendTrace(0, LOG))
    job.reply(403, "failed")
    job.expect_wait(600)


def test_a_hold_ends_when_it_is_released() -> None:
    job = job_on_hold()
    job.life.release_hold()
    job.expect(Close())
    # A process that died before it told the agent sends the final state again, and the hold stays released.
    restarted = JobHarness(job.life.record, epoch=500_000.0)
    restarted.reply(200, "failed")
    restarted.expect(Close())


def test_a_hold_ends_when_its_machine_is_lost() -> None:
    job = job_on_hold()
    job.life.on_machine_lost("gone", job.now)
    job.expect(Close(tells_agent=False))


def test_a_hold_is_given_up_after_its_end_if_the_agent_is_unreachable() -> None:
    job = job_on_hold(60)
    job.advance(61)
    job.expect(Close())
    for _ in range(1000):
        job.life.on_agent_failed("no route", job.now)
        job.advance(30)
        if job.life.next_action(job.now) == Forget():
            break
    job.expect(Forget())
