"""Servers that do not answer jobs: who hears of it, and how often."""

import pytest

from remuda.manager.polling.server_health import ServerHealth
from remuda.telemetry import logs


@pytest.fixture
def levels() -> list[str]:
    found: list[str] = []
    logs.notify_of_problems("manager", found.append)
    return found


def test_one_warning_per_runner_until_all_its_jobs_are_answered(levels: list[str]) -> None:
    hearing = ServerHealth()
    for runner in ("one", "one", "other"):
        hearing.add_job(runner)
    hearing.note_answer("one", "1")
    assert hearing.problem("one") == ""
    for _ in range(3):
        hearing.note_failure("one", "1", "refused")
        hearing.note_failure("one", "2", "cut")
    assert levels == ["warning"]
    assert hearing.problem("one") == "the server cannot be reached; 2 jobs wait: cut"
    assert hearing.problem("other") == ""
    hearing.note_answer("one", "2")
    assert hearing.problem("one") == "the server cannot be reached; 1 job waits: refused"
    hearing.note_answer("one", "1")
    assert hearing.problem("one") == ""
    hearing.note_failure("one", "1", "refused")
    hearing.note_failure("other", "3", "refused")
    assert levels == ["warning"] * 3


def test_a_job_that_is_over_does_not_wait(levels: list[str]) -> None:
    hearing = ServerHealth()
    hearing.add_job("one")
    hearing.note_failure("one", "1", "refused")
    hearing.remove_job("one", "1")
    hearing.remove_job("one", "2")
    assert hearing.problem("one") == ""
