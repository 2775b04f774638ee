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


def section(name: str) -> bytes:
    return f"section_start:1700000000:{name}\r\x1b[0K".encode()


@pytest.mark.parametrize(
    ("log", "began"),
    [
        (b"", False),
        (section("prepare_executor") + b"no machine\n", False),
        (section("prepare_executor") + section("get_sources") + b"no route\n", False),
        (section("get_sources") + section("step_script") + b"$ make\n", True),
        (section("get_sources") + section("build_script"), True),
        (section("get_sources") + section("step_release"), True),
        (section("prepare_script") + section("after_script"), True),
        (b"a runner without sections\n", True),
        (section("git") + b"a runner with sections of its own\n", True),
    ],
)
def test_what_a_log_tells(log: bytes, began: bool) -> None:
    assert has_begun_script_by_log(log, len(log)) is began


def test_a_log_of_which_only_the_beginning_is_known_tells_nothing() -> None:
    log = section("prepare_executor") + b"x" * LOG_BYTES
    assert has_begun_script_by_log(log[:LOG_BYTES], len(log))


def test_what_results_tell() -> None:
    checkout = {"origin": "compiled", "event": "finished", "status": "failure"}
    for event in (checkout, {"origin": "user", "event": "finished", "status": "skipped"}, 7):
        assert not has_begun_script(event)
    assert has_begun_script({"origin": "user", "event": "started"})
    assert has_begun_script({"event": CUT}), "nobody knows any more"


def test_when_a_failure_is_a_loss() -> None:
    failure = FailureReason.RUNNER_SYSTEM_FAILURE
    assert is_lost(a_job(), failure, before_script=True)
    assert not is_lost(a_job(), failure, before_script=False)
    assert not is_lost(a_job(), FailureReason.SCRIPT_FAILURE, before_script=True)
    assert not is_lost(a_job(), FailureReason.NO_UPDATES_RUNNING, before_script=True), "it may still run"
    assert not is_lost(a_job(lost_tries=MOST_LOSSES), failure, before_script=True)
    assert not is_lost(a_job(is_trigger=True), failure, before_script=True)
    assert FailureReason.IMAGE_PULL_FAILURE not in POSSIBLE
