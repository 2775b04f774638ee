"""Failure reasons that a server does not list are replaced by one that it knows."""

import pytest

from remuda.manager.core.life import accepted_reason


@pytest.mark.parametrize(
    ("reason", "listed", "sent"),
    [
        ("script_failure", [], "script_failure"),
        ("runner_system_failure", [], "runner_system_failure"),
        ("job_execution_timeout", [], "job_execution_timeout"),
        ("job_canceled", [], "unknown_failure"),
        ("job_canceled", ["job_canceled"], "job_canceled"),
        ("image_pull_failure", [], "runner_system_failure"),
        ("runner_configuration_error", [], "script_failure"),
        ("runner_external_dependency_failure", [], "runner_system_failure"),
        ("", [], "unknown_failure"),
        ("something new", ["something new"], "something new"),
    ],
)
def test_the_reason_sent(reason: str, listed: list[str], sent: str) -> None:
    assert accepted_reason(reason, listed) == sent
