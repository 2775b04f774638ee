"""The life of a job as playbooks: what happened on the left, what the manager does next on the right."""

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
    """A job on the one machine of its environment."""
    return Record(**{"machine": "local"} | changes)


class Book:
    """A life and a clock beside it."""

    def __init__(self, record: Record | None = None, **options: Any) -> None:
        self.now = 1000.0
        self.life = Life(record or a_record(), now=self.now, **options)

    def does(self, expected: Action) -> None:
        assert self.life.next_action(self.now) == expected

    def waits(self, seconds: float) -> None:
        assert self.life.next_action(self.now) == Wait(pytest.approx(self.now + seconds))  # type: ignore[arg-type]

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def hears(self, status: int, job_status: str = "running", **more: Any) -> None:
        """The server's answer to what the life wants to do now."""
        action = self.life.next_action(self.now)
        assert isinstance(action, Call), action
        self.life.on_reply(action, JobReply(status=status, job_status=job_status, **more), self.now)

    def hears_nothing(self) -> None:
        self.life.on_no_answer(self.now, "connection refused")


def started(**options: Any) -> Book:
    """A job that the agent has and that is being watched."""
    book = Book(a_record(phase=Phase.STARTED), **options)
    book.does(Subscribe())
    book.life.on_subscribed()
    return book


def success(**changes: Any) -> Outcome:
    values: dict[str, Any] = {"state": "success", "log_bytes": len(LOG), "results": 1, "checksum": CRC}
    return Outcome(**values | changes)


def final(**changes: Any) -> SendFinal:
    values: dict[str, Any] = {
        "state": "success",
        "failure_reason": None,
        "exit_code": 0,
        "bytesize": len(LOG),
        "checksum": CRC,
    }
    return SendFinal(**values | changes)


def test_a_job_from_its_receipt_to_its_end() -> None:
    book = Book()
    book.does(Acknowledge())
    book.hears(200)
    assert book.life.record == a_record(phase=Phase.ACKNOWLEDGED)
    book.does(Start())
    book.life.on_started()
    assert book.life.record == a_record(phase=Phase.STARTED)
    book.does(Subscribe())
    book.life.on_subscribed()
    book.life.on_log(0, LOG)
    book.life.on_result(1, b'{"seq":1}')
    book.does(SendResults(1, (b'{"seq":1}',)))
    book.hears(200, next_seq=2)
    book.does(SendTrace(0, LOG))
    book.hears(202)
    assert book.life.record == a_record(phase=Phase.STARTED, log_offset=len(LOG), log_crc=zlib.crc32(LOG), result_seq=2)
    book.life.on_ended(success(), book.now)
    book.does(final())
    book.hears(200, "success")
    book.does(Close())
    book.life.on_closed()
    book.does(Forget())
    assert book.life.problem == ""


def test_only_an_explicit_confirmation_lets_a_job_start() -> None:
    book = Book()
    for silence in (book.hears_nothing, lambda: book.hears(400), lambda: book.hears(409), lambda: book.hears(502)):
        silence()
        assert isinstance(book.life.next_action(book.now), Wait)
        book.passes(60)
        book.does(Acknowledge())
    book.hears(200)
    book.does(Start())


@pytest.mark.parametrize("status", [202, 400, 409])
def test_a_gitlab_server_need_not_like_the_message_to_have_given_us_the_job(status: int) -> None:
    book = Book(sends_results=False)
    book.hears(status)
    book.does(Start())


@pytest.mark.parametrize(("status", "job_status"), [(403, ""), (404, ""), (200, "canceled"), (200, "failed")])
def test_a_job_that_the_server_does_not_want_is_forgotten_at_once(status: int, job_status: str) -> None:
    book = Book()
    book.hears(status, job_status)
    book.does(Forget())


def test_an_acknowledgement_that_never_comes_is_given_up() -> None:
    book = Book(limits=Limits(acknowledge=100))
    book.hears_nothing()
    book.passes(101)
    book.hears_nothing()
    book.does(Forget())
    assert "given up" in book.life.problem


def test_a_job_that_is_canceling_before_it_started_never_starts() -> None:
    book = Book()
    book.hears(200, "canceling")
    action = book.life.next_action(book.now)
    assert isinstance(action, SendTrace)
    assert action.data.endswith(b" 00O ERROR: Job failed: canceled before it started\n")
    book.hears(202, "canceling")
    action = book.life.next_action(book.now)
    assert isinstance(action, SendFinal)
    assert (action.state, action.failure_reason) == ("failed", "unknown_failure")
    book.hears(200, "canceled")
    book.does(Forget())


def test_the_first_bytes_go_at_once_the_next_ones_at_the_servers_interval() -> None:
    book = started()
    book.life.on_log(0, b"one")
    book.does(SendTrace(0, b"one"))
    book.hears(202, interval_seconds=5.0)
    book.life.on_log(3, b"two")
    book.waits(5)
    book.passes(5)
    book.does(SendTrace(3, b"two"))


def test_what_comes_first_is_gathered_unless_the_job_is_over() -> None:
    book = started(limits=Limits(gathering=5))
    book.life.on_log(0, LOG)
    book.life.on_result(1, b"{}")
    book.does(Wait(book.now + 5))
    book.passes(5)
    book.does(SendResults(1, (b"{}",)))
    book.hears(200, next_seq=2)
    book.does(SendTrace(0, LOG))
    book.hears(202)
    book.life.on_result(2, b"{}")
    assert isinstance(book.life.next_action(book.now), Wait)
    book.life.on_ended(success(results=2), book.now)
    book.does(SendResults(2, (b"{}",)))


def test_a_full_chunk_and_the_last_bytes_do_not_wait() -> None:
    book = started()
    book.life.on_log(0, b"one")
    book.hears(202, interval_seconds=60.0)
    book.life.on_log(3, b"x" * CHUNK_BYTES)
    book.does(SendTrace(3, b"x" * CHUNK_BYTES))
    book.hears(202)
    end = 3 + CHUNK_BYTES
    book.life.on_log(end, b"last")
    book.life.on_ended(success(log_bytes=end + 4, results=0), book.now)
    book.does(SendTrace(end, b"last"))


def test_too_much_waiting_asks_the_agent_to_pause_and_goes_on_when_there_is_room() -> None:
    book = started()
    book.life.on_log(0, b"x" * (HIGH_BYTES + 1))
    assert book.life.is_overfull
    book.life.on_unsubscribed()
    for _ in range(2):
        assert isinstance(book.life.next_action(book.now), SendTrace)
        book.hears(202)
    book.does(Subscribe())
    assert book.life.position == (HIGH_BYTES + 1, 1)


def test_a_server_that_stands_elsewhere_is_believed() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.hears(416, size=6)
    book.does(SendTrace(6, LOG[6:]))


def test_a_server_that_lost_bytes_gets_them_from_the_agent_again() -> None:
    book = Book(a_record(phase=Phase.STARTED, log_offset=6, log_crc=zlib.crc32(LOG[:6])))
    book.life.on_subscribed()
    book.life.on_log(6, LOG[6:])
    book.hears(416, size=None)
    book.does(Subscribe())
    assert book.life.position == (0, 1)


def test_a_server_that_repeats_itself_is_asked_with_growing_waits() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.hears(416, size=None)
    assert isinstance(book.life.next_action(book.now), Wait)
    confused = started()
    confused.life.on_log(0, LOG)
    confused.hears(416, size=6)
    assert isinstance(confused.life.next_action(confused.now), SendTrace)
    confused.hears(416, size=8)
    assert isinstance(confused.life.next_action(confused.now), Wait)


def test_silence_is_broken_with_size_and_checksum() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.hears(202)
    book.waits(30)
    book.passes(30)
    book.does(KeepAlive(len(LOG), CRC))
    book.hears(200)
    book.waits(30)


def test_while_the_server_is_away_waits_grow_and_nothing_is_lost() -> None:
    book = started()
    book.life.on_log(0, LOG)
    waits = []
    for _ in range(12):
        book.hears_nothing()
        action = book.life.next_action(book.now)
        assert isinstance(action, Wait)
        waits.append(action.until - book.now)
        book.now = action.until
    assert waits == sorted(waits)
    assert waits[-1] == 30
    book.does(SendTrace(0, LOG))


def test_canceling_tells_the_agent_once_even_across_processes() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.hears(202, "canceling")
    book.does(CancelSteps())
    book.life.on_cancel_sent()
    book.waits(30)
    again = Book(book.life.record)
    again.life.on_subscribed()
    again.passes(30)
    again.hears(200, "canceling")
    again.waits(30)


@pytest.mark.parametrize(("status", "job_status"), [(403, ""), (202, "canceled"), (202, "failed")])
def test_an_aborted_job_is_closed_at_once(status: int, job_status: str) -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.hears(status, job_status)
    book.does(Close())
    assert book.life.record.phase is Phase.OVER


def test_the_final_state_is_offered_until_the_server_takes_it() -> None:
    book = Book(a_record(phase=Phase.ENDED, log_offset=len(LOG), result_seq=2, outcome=success()))
    book.does(final())
    book.hears(202, interval_seconds=7.0)
    book.waits(7)
    book.passes(7)
    book.hears(500)
    book.passes(60)
    book.hears(400)
    book.passes(60)
    book.does(final())
    book.hears(200, "success")
    book.does(Close())


def test_a_bad_checksum_sends_the_whole_log_again() -> None:
    book = Book(a_record(phase=Phase.ENDED, log_offset=len(LOG), result_seq=2, outcome=success()))
    book.hears(412)
    book.does(Subscribe())
    assert book.life.position == (0, 2)
    book.life.on_subscribed()
    book.life.on_log(0, LOG)
    book.life.on_ended(success(), book.now)
    book.passes(3)
    book.does(SendTrace(0, LOG))
    book.hears(202)
    book.does(final())


def test_the_final_state_is_given_up_after_its_limit() -> None:
    book = Book(
        a_record(phase=Phase.ENDED, log_offset=len(LOG), result_seq=2, outcome=success()), limits=Limits(ending=100)
    )
    book.hears_nothing()
    book.passes(100)
    book.hears_nothing()
    book.does(Close())
    assert "given up" in book.life.problem


def test_a_failed_job_says_why_in_words_the_server_accepts() -> None:
    outcome = success(state="failed", reason="job_canceled", exit_code=3, results=0)
    record = a_record(phase=Phase.ENDED, log_offset=len(LOG), outcome=outcome)
    Book(record).does(final(state="failed", failure_reason="unknown_failure", exit_code=3))
    Book(record, accepted_reasons=["job_canceled"]).does(
        final(state="failed", failure_reason="job_canceled", exit_code=3)
    )


def test_a_job_that_the_agent_lost_fails_with_the_cause_behind_its_log() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.life.on_unknown_job(book.now)
    action = book.life.next_action(book.now)
    assert isinstance(action, SendTrace)
    assert action.data.startswith(LOG)
    assert b"ERROR: Job failed (system failure): the agent lost the job" in action.data
    book.hears(202)
    action = book.life.next_action(book.now)
    assert isinstance(action, SendFinal)
    assert (action.state, action.failure_reason) == ("failed", "runner_system_failure")


def test_the_managers_own_line_is_sent_once_across_processes() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.life.on_unknown_job(book.now)
    before = Book(book.life.record)
    first = before.life.next_action(before.now)
    assert isinstance(first, SendTrace)
    assert first.start == 0  # what had not been sent is gone with the process; the line still is
    assert b"the agent lost the job" in first.data
    book.hears(202)
    after = Book(book.life.record)
    assert isinstance(after.life.next_action(after.now), SendFinal)


def test_the_managers_own_line_never_overwrites_what_the_server_has() -> None:
    """The process died after bytes were sent and before it knew; then the agent lost the job."""
    book = Book(a_record(phase=Phase.STARTED))
    book.life.on_unknown_job(book.now)
    first = book.life.next_action(book.now)
    assert isinstance(first, SendTrace)
    book.hears(416, size=11)
    book.does(SendTrace(11, first.data))
    again = Book(book.life.record)
    again.does(SendTrace(11, first.data))
    again.hears(416, size=11 + len(first.data))  # it had arrived
    assert isinstance(again.life.next_action(again.now), SendFinal)


def test_an_agent_that_stays_away_loses_its_jobs_after_the_limit() -> None:
    book = started(limits=Limits(agent=100))
    book.life.on_agent_failed("no such file", book.now)
    book.passes(99)
    book.life.on_agent_failed("no such file", book.now)
    assert book.life.phase is Phase.STARTED
    book.passes(2)
    book.life.on_agent_failed("no such file", book.now)
    assert book.life.outcome is not None
    assert "no such file" in book.life.outcome.message


def test_an_agent_that_comes_back_loses_nothing() -> None:
    book = started(limits=Limits(agent=100))
    book.life.on_agent_failed("refused", book.now)
    book.passes(99)
    book.life.on_agent_back()
    book.passes(99)
    book.life.on_agent_failed("refused", book.now)
    assert book.life.phase is Phase.STARTED


def test_a_start_that_failed_is_tried_again_and_the_server_hears_of_us_meanwhile() -> None:
    book = Book(a_record(phase=Phase.ACKNOWLEDGED))
    for _ in range(9):
        book.life.on_agent_failed("refused", book.now)
    book.passes(30)
    book.life.on_agent_failed("refused", book.now)
    book.does(KeepAlive(0, "crc32:00000000"))
    book.hears(200)
    book.waits(30)
    book.passes(30)
    book.does(Start())


def test_a_server_without_results_endpoint_gets_none() -> None:
    book = started()
    book.life.on_result(1, b"{}")
    book.hears(404, "")
    book.waits(30)
    book.life.on_ended(success(log_bytes=0, checksum="crc32:00000000"), book.now)
    assert isinstance(book.life.next_action(book.now), SendFinal)


def test_results_follow_the_servers_next_number() -> None:
    book = started()
    for seq in (1, 2, 3):
        book.life.on_result(seq, b"%d" % seq)
    book.hears(409, next_seq=3)
    book.does(SendResults(3, (b"3",)))
    book.hears(409, next_seq=2)
    book.does(Subscribe())
    assert book.life.position == (0, 2)


def test_results_of_short_steps_go_together() -> None:
    book = started()
    book.life.on_result(1, b"1")
    book.does(SendResults(1, (b"1",)))
    book.hears(200)
    book.life.on_result(2, b"2")
    book.waits(RESULTS_SECONDS)
    book.passes(RESULTS_SECONDS / 2)
    book.life.on_result(3, b"3")
    book.waits(RESULTS_SECONDS / 2)
    book.passes(RESULTS_SECONDS / 2)
    book.does(SendResults(2, (b"2", b"3")))
    book.hears(200)
    book.life.on_result(4, b"4")
    book.life.on_ended(success(log_bytes=0, results=4), book.now)
    book.does(SendResults(4, (b"4",)))


def test_an_end_that_came_with_bytes_missing_is_read_again_and_then_believed() -> None:
    book = started()
    book.life.on_log(0, LOG[:4])
    book.life.on_ended(success(results=0), book.now)
    for _ in range(4):
        book.does(Subscribe())
        book.life.on_subscribed()
        book.life.on_ended(success(results=0), book.now)
    book.does(SendTrace(0, LOG[:4]))
    book.hears(202)
    book.does(final())


def test_an_end_that_is_older_than_the_subscription_loses_nothing() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.hears(202)
    book.life.on_log(len(LOG), b"more")
    book.passes(3)
    book.hears(416, size=6)
    book.does(Subscribe())
    book.life.on_subscribed()
    book.life.on_ended(success(log_bytes=len(LOG) + 4, results=0), book.now)
    book.does(Subscribe())
    book.life.on_subscribed()
    book.life.on_log(6, LOG[6:] + b"more")
    book.does(SendTrace(6, LOG[6:] + b"more"))


def test_a_trace_that_is_not_found_at_the_end_does_not_keep_the_job() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.life.on_ended(success(results=0), book.now)
    book.hears(404, "")
    book.does(final())


def test_closing_an_agent_that_stays_away_is_given_up() -> None:
    book = Book(a_record(phase=Phase.OVER), limits=Limits(agent=100))
    book.does(Close())
    for following in (Close(tells_agent=False), Forget()):
        book.life.on_agent_failed("refused", book.now)
        book.passes(100)
        book.life.on_agent_failed("refused", book.now)
        book.passes(30)
        book.does(following)


def test_a_job_gets_a_machine_first_where_there_are_several() -> None:
    book = Book(Record())
    book.does(Acknowledge())
    book.hears(200)
    book.does(Acquire())
    assert book.life.keep_alive_action(book.now) == Wait(book.now + 30)
    book.passes(30)
    assert book.life.keep_alive_action(book.now) == KeepAlive(0, "crc32:00000000")
    book.life.on_placed("one")
    assert book.life.record == Record(phase=Phase.ACKNOWLEDGED, machine="one")
    book.does(Start())


def test_a_job_that_never_had_a_machine_leaves_none_to_clean_up() -> None:
    book = Book(Record())
    book.hears(200)
    book.does(Acquire())
    book.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "no machine for it", book.now)
    book.hears(202)
    book.hears(200)
    book.does(Forget())


def test_a_job_that_was_found_goes_on_where_the_server_stands() -> None:
    book = Book(a_record(phase=Phase.FOUND))
    book.does(Acknowledge())
    book.hears_nothing()
    book.passes(30)
    book.hears(200)
    assert book.life.record == a_record(phase=Phase.STARTED)
    book.does(Subscribe())
    book.life.on_subscribed()
    book.life.on_log(0, LOG[:11])
    book.does(SendTrace(0, LOG[:11]))
    book.hears(416, size=15)
    book.life.on_log(11, LOG[11:])
    book.life.on_result(1, b"{}")
    book.life.on_ended(success(), book.now)
    book.does(SendResults(1, (b"{}",)))
    book.hears(409, next_seq=2)
    book.does(SendTrace(15, LOG[15:]))
    book.hears(202)
    book.does(final())


@pytest.mark.parametrize(("status", "word"), [(403, ""), (404, ""), (200, "failed"), (200, "canceled")])
def test_a_job_that_was_found_and_is_not_ours_any_more_is_closed(status: int, word: str) -> None:
    book = Book(a_record(phase=Phase.FOUND))
    book.hears(status, word)
    book.does(Close())
    book.life.on_closed()
    book.does(Forget())


def test_a_job_that_was_found_may_have_been_canceled_meanwhile() -> None:
    book = Book(a_record(phase=Phase.FOUND))
    book.hears(200, "canceling")
    book.does(CancelSteps())


def test_a_lost_machine_ends_its_job_with_the_cause_and_is_released() -> None:
    book = started()
    book.life.on_log(0, LOG)
    book.life.on_machine_lost("the machine one is lost: reclaimed", book.now)
    book.hears(202)
    action = book.life.next_action(book.now)
    assert isinstance(action, SendFinal)
    assert (action.state, action.failure_reason) == ("failed", "runner_system_failure")
    book.hears(200, "failed")
    book.does(Close(tells_agent=False))
    book.life.on_closed()
    book.does(Forget())


@pytest.mark.parametrize("asked", [False, True])
def test_a_machine_that_is_lost_may_have_begun_what_it_was_asked_for(asked: bool) -> None:
    """Whoever asked the agent, and died before it knew the answer, has left the machine in the record."""
    book = Book(a_record(phase=Phase.ACKNOWLEDGED, machine=""))
    book.life.on_placed("one")
    if asked:
        book = Book(book.life.record)
    book.life.on_machine_lost("reclaimed", book.now)
    book.hears(202)
    action = Book(book.life.record).life.next_action(book.now)
    assert isinstance(action, SendFinal)
    assert action.may_have_begun is asked


def test_a_machine_that_is_lost_after_the_end_costs_the_job_nothing() -> None:
    book = Book(
        a_record(phase=Phase.ENDED, log_offset=len(LOG), log_crc=zlib.crc32(LOG), result_seq=2, outcome=success())
    )
    book.life.on_machine_lost("reclaimed", book.now)
    book.does(final())
    book.hears(200, "success")
    book.does(Close(tells_agent=False))


def test_a_job_of_a_dead_process_goes_on_from_its_record() -> None:
    Book(a_record(phase=Phase.RECEIVED)).does(Acknowledge())
    Book(a_record(phase=Phase.ACKNOWLEDGED)).does(Start())
    book = Book(a_record(phase=Phase.STARTED, log_offset=6, result_seq=4))
    book.does(Subscribe())
    assert book.life.position == (6, 4)
    unsent = Book(a_record(phase=Phase.ENDED, log_offset=6, result_seq=2, outcome=success()))
    unsent.does(Subscribe())
    unsent.life.on_unknown_job(unsent.now)
    unsent.does(final())
    Book(a_record(phase=Phase.OVER)).does(Close())


def test_failing_twice_keeps_the_first_cause() -> None:
    book = started()
    book.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "first", book.now)
    book.life.fail(FailureReason.RUNNER_SYSTEM_FAILURE, "second", book.now)
    assert book.life.outcome is not None
    assert book.life.outcome.message == "first"


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_life_ends_once_server_and_agent_answer(data: st.DataObject) -> None:
    """From any mess of answers and events, good answers lead to the end, and nothing starts unconfirmed."""
    limits = Limits(agent=1e9, ending=1e9, acknowledge=1e9)
    book = Book(data.draw(st.sampled_from([Record(), a_record(), a_record(phase=Phase.FOUND)])), limits=limits)
    confirmed = False
    for step in range(200):
        calm = step > 60
        action = book.life.next_action(book.now)
        match action:
            case Forget():
                return
            case Wait():
                assert action.until > book.now
                book.now = action.until
            case Acquire():
                assert confirmed
                book.life.on_placed("one")
            case Start():
                assert confirmed
                if calm or data.draw(st.booleans()):
                    book.life.on_started()
                else:
                    book.life.on_agent_failed("away", book.now)
            case Subscribe():
                book.life.on_subscribed()
                offset, seq = book.life.position
                book.life.on_log(offset, LOG[offset:])
                if seq == 1:
                    book.life.on_result(1, b"{}")
                if calm or data.draw(st.booleans()):
                    book.life.on_ended(success(), book.now)
            case CancelSteps():
                book.life.on_cancel_sent()
            case Close():
                book.life.on_closed()
            case Acknowledge() | SendTrace() | SendResults() | KeepAlive() | SendFinal():
                good = 202 if isinstance(action, SendTrace) else 200
                status = good if calm else data.draw(st.sampled_from([good, 202, 400, 404, 409, 412, 416, 500]))
                word = "running" if calm else data.draw(st.sampled_from(["running", "", "canceling"]))
                confirmed = confirmed or (isinstance(action, Acknowledge) and status == 200)
                size = None if calm else data.draw(st.none() | st.integers(0, len(LOG)))
                book.life.on_reply(action, JobReply(status=status, job_status=word, size=size), book.now)
        if calm and book.life.phase is Phase.STARTED and isinstance(action, Wait):
            book.life.on_ended(success(), book.now)
    raise AssertionError("the job never ended")


def test_a_server_that_wants_no_results_never_stops_a_job_that_has_many() -> None:
    book = started(sends_results=False)
    for seq in range(1, 10):
        book.life.on_result(seq, b"x" * CHUNK_BYTES)
    assert not book.life.is_overfull
    assert book.life.position == (0, 10)


def test_a_server_that_refuses_results_does_not_stop_the_job_either() -> None:
    book = started()
    for seq in range(1, 4):
        book.life.on_result(seq, b"x" * CHUNK_BYTES)
    assert book.life.is_overfull
    book.hears(413)
    assert not book.life.is_overfull


def held(seconds: float = 600) -> Book:
    """A job that failed, of which the server has everything, and whose environment stays."""
    book = started(epoch=500_000.0)
    book.life.on_log(0, LOG)
    outcome = success(state="failed", reason="script_failure", exit_code=1, results=0)
    book.life.on_ended(msgspec.structs.replace(outcome, held_until=500_000.0 + book.now + seconds), book.now)
    book.hears(202)
    book.does(final(state="failed", failure_reason="script_failure", exit_code=1))
    book.hears(200, "failed")
    return book


def test_a_failed_job_is_held_when_the_server_knows_its_end() -> None:
    book = held()
    assert book.life.record.phase is Phase.ON_HOLD
    book.waits(600)
    book.passes(599)
    book.waits(1)
    book.passes(1)
    book.does(Close())
    book.life.on_closed()
    book.does(Forget())


def test_a_hold_goes_on_in_a_new_process() -> None:
    record = held().life.record
    book = Book(record, epoch=500_000.0)
    book.waits(600)
    later = Book(record, epoch=500_700.0)
    later.does(Close())


def test_a_hold_goes_on_where_only_the_server_knew_that_it_had_begun() -> None:
    """Killed between the server's answer and the journal, it sends log and results again, which nobody wants."""
    record = msgspec.structs.replace(held().life.record, phase=Phase.ENDED, log_offset=0, log_crc=0)
    book = Book(record, epoch=500_000.0)
    book.life.on_log(0, LOG)
    book.does(SendTrace(0, LOG))
    book.hears(403, "failed")
    book.waits(600)


def test_a_hold_ends_when_nobody_needs_it() -> None:
    book = held()
    book.life.release_hold()
    book.does(Close())
    # Killed before the agent heard of it: the server is told again, and nothing is held.
    again = Book(book.life.record, epoch=500_000.0)
    again.hears(200, "failed")
    again.does(Close())


def test_a_hold_ends_with_its_machine() -> None:
    book = held()
    book.life.on_machine_lost("gone", book.now)
    book.does(Close(tells_agent=False))


def test_a_hold_whose_agent_stays_away_is_given_up_after_its_end() -> None:
    book = held(60)
    book.passes(61)
    book.does(Close())
    for _ in range(1000):
        book.life.on_agent_failed("no route", book.now)
        book.passes(30)
        if book.life.next_action(book.now) == Forget():
            break
    book.does(Forget())
