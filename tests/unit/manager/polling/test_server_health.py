"""Jobs whose server does not answer: warnings in the log and the problem shown for the runner."""

import pytest

from remuda.manager.polling.server_health import ServerHealth
from remuda.telemetry import logs


@pytest.fixture
def levels() -> list[str]:
    levels: list[str] = []
    logs.notify_of_problems("manager", levels.append)
    return levels


def test_one_warning_per_runner_until_all_its_jobs_got_an_answer(levels: list[str]) -> None:
    health = ServerHealth()
    for runner in ("one", "one", "other"):
        health.add_job(runner)
    health.note_answer("one", "1")
    assert health.problem("one") == ""
    for _ in range(3):
        health.note_failure("one", "1", "refused")
        health.note_failure("one", "2", "cut")
    assert levels == ["warning"]
    assert health.problem("one") == "the server cannot be reached; 2 jobs wait: cut"
    assert health.problem("other") == ""
    health.note_answer("one", "2")
    assert health.problem("one") == "the server cannot be reached; 1 job waits: refused"
    health.note_answer("one", "1")
    assert health.problem("one") == ""
    health.note_failure("one", "1", "refused")
    health.note_failure("other", "3", "refused")
    assert levels == ["warning"] * 3


def test_a_removed_job_does_not_count(levels: list[str]) -> None:
    health = ServerHealth()
    health.add_job("one")
    health.note_failure("one", "1", "refused")
    health.remove_job("one", "1")
    health.remove_job("one", "2")
    assert health.problem("one") == ""
