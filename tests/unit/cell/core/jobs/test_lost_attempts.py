"""Whether a failed attempt was lost before its script started, from the log and the step results."""

import pytest

from remuda.cell.core.jobs.lost_attempts import (
    LOG_BYTES,
    MOST_LOSSES,
    POSSIBLE,
    has_begun_script,
    has_begun_script_by_log,
    is_lost,
)
from remuda.cell.core.jobs.result_limits import CUT
from remuda.model.job import FailureReason
from remuda.testing.builders import a_job


def section_start(name: str) -> bytes:
    return f"section_start:1700000000:{name}\r\x1b[0K".encode()


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (b"", False),
        (section_start("prepare_executor") + b"no machine\n", False),
        (section_start("prepare_executor") + section_start("get_sources") + b"no route\n", False),
        (section_start("get_sources") + section_start("step_script") + b"$ make\n", True),
        (section_start("get_sources") + section_start("build_script"), True),
        (section_start("get_sources") + section_start("step_release"), True),
        (section_start("prepare_script") + section_start("after_script"), True),
        (b"a runner without sections\n", True),
        (section_start("git") + b"a runner with sections of its own\n", True),
    ],
)
def test_start_of_the_script_by_the_log(log: bytes, expected: bool) -> None:
    assert has_begun_script_by_log(log, len(log)) is expected


def test_a_script_may_have_started_if_the_log_is_incomplete() -> None:
    log = section_start("prepare_executor") + b"x" * LOG_BYTES
    assert has_begun_script_by_log(log[:LOG_BYTES], len(log))


def test_start_of_the_script_by_results() -> None:
    checkout = {"origin": "compiled", "event": "finished", "status": "failure"}
    for event in (checkout, {"origin": "user", "event": "finished", "status": "skipped"}, 7):
        assert not has_begun_script(event)
    assert has_begun_script({"origin": "user", "event": "started"})
    assert has_begun_script({"event": CUT}), "the results are incomplete"


def test_failures_that_count_as_lost() -> None:
    failure = FailureReason.RUNNER_SYSTEM_FAILURE
    assert is_lost(a_job(), failure, before_script=True)
    assert not is_lost(a_job(), failure, before_script=False)
    assert not is_lost(a_job(), FailureReason.SCRIPT_FAILURE, before_script=True)
    assert not is_lost(a_job(), FailureReason.NO_UPDATES_RUNNING, before_script=True), "the job may still run"
    assert not is_lost(a_job(lost_tries=MOST_LOSSES), failure, before_script=True)
    assert not is_lost(a_job(is_trigger=True), failure, before_script=True)
    assert FailureReason.IMAGE_PULL_FAILURE not in POSSIBLE
